"""Parked jobs in the admin: every job that is not on the schedule, why, and the actions on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.schedule.model import ParkedKind
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import ExactFilter, LevelFilter, ShardFilter, TenantNameFilter
from webadmin.adminkit.sections import Facts, Notice, Section
from webadmin.progress.models import ParkedJob
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.actions import PARKED_ACTIONS
from webadmin.schedule.admin import job_page
from webadmin.schedule.explain import explain_job_row
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.register import LastErrorColumns, is_kind, with_last_error
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

KIND_TONES = {ParkedKind.EVICTED: "bad", ParkedKind.DEFERRED: "quiet", ParkedKind.QUARANTINED: "warn"}


class KindFilter(admin.SimpleListFilter):
    """Jobs parked for one reason."""

    title = "cause"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(kind.value, kind.value) for kind in ParkedKind]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        kind = self.value()
        return queryset.filter(is_kind(ParkedKind(kind))) if kind in set(ParkedKind) else queryset


class LastErrorFilter(ExactFilter):
    """Jobs whose last attempt ended with one error class."""

    title = "error class"
    parameter_name = "error_class"
    column = "last_error_class"


class ParkedColumns(NowColumns, LastErrorColumns):
    """The columns of ``ParkedJobAdmin.get_queryset``."""


@admin.register(ParkedJob)
class ParkedJobAdmin(ActionAdmin):
    """Parked jobs, the last planned first."""

    list_display = ("name_cell", "kind_cell", "error", "place", "failure_count", "sources", "age")
    list_filter = (KindFilter, LastErrorFilter, LevelFilter, TenantNameFilter, ShardFilter)
    shortcuts = tuple((kind.value.capitalize(), f"kind={kind.value}") for kind in ParkedKind)
    about = (
        "Jobs removed from the schedule, with the reason. Parked jobs keep their blocks: "
        "requeue a job, or return its blocks to their queues."
    )
    empty_list = "No parked jobs."
    operator_actions = PARKED_ACTIONS

    def get_queryset(self, request: HttpRequest) -> QuerySet[ParkedJob]:
        parked = ParkedJob.objects.select_related("worker").defer("result")
        return with_last_error(queries.with_now(parked, queries.command_now_ms()))

    def action_rows(self, ids: Sequence[str]) -> QuerySet[ParkedJob]:
        return ParkedJob.objects.filter(pk__in=ids)

    def heading(self, row: ParkedJob) -> str:
        return f"Parked job {row.name}"

    def notices(self, row: ParkedJob) -> Sequence[Notice]:
        return [Notice(tone="quiet", text=explain_job_row(row).sentence)]

    def sections(self, row: WithAnnotations[ParkedJob, ParkedColumns]) -> Sequence[Section]:
        return [
            Facts(title="Reason", rows=[("Cause", self.kind_cell(row)), ("Last error", self.error(row))]),
            *job_page.job_sections(row, row.now_ms),
            *lane_of(row.lane).job_sections(row, row.now_ms),
        ]

    @display(description="Job")
    def name_cell(self, row: ParkedJob) -> SafeString:
        return show.note(show.short_code(row.name), row.lane)

    @display(description="Cause")
    def kind_cell(self, row: ParkedJob) -> SafeString:
        kind = ParkedKind(row.parked_kind or ParkedKind.EVICTED)
        return show.badge(kind.value, KIND_TONES[kind], row.parked_reason)

    @display(description="Last error")
    def error(self, row: WithAnnotations[ParkedJob, ParkedColumns]) -> SafeString | str:
        if not row.last_error_class:
            return row.parked_reason[:120]
        return show.note(row.last_error_class, (row.last_error_message or "")[:120])

    @display(description="Tenant")
    def place(self, row: ParkedJob) -> SafeString:
        return show.note(show.name(job_page.tenant_text(row.tenant)), show.place_text(row.shard, row.level))

    @display(description="Failures")
    def failure_count(self, row: ParkedJob) -> SafeString | str:
        return job_page.failures(row)

    @display(description="Keeps")
    def sources(self, row: ParkedJob) -> SafeString:
        return show.note(show.counted(row.source_count, "block"), show.size_text(row.source_bytes))

    @display(description="Planned ago")
    def age(self, row: WithAnnotations[ParkedJob, ParkedColumns]) -> SafeString | str:
        return show.waited(row.added_at_ms, row.now_ms, clock=show.COMMAND_TIME)
