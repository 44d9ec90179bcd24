"""Admin pages for push limits and push counts. Limits are changed through ``change_push_limit``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import ExactFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.base.database import dialect
from webadmin.ingest.actions import SET_PUSH_LIMIT
from webadmin.ingest.models import ACCEPTED, PushCount, PushLimitChange
from webadmin.ingest.tenant_limits import DEFAULTS, PushLimitName
from webadmin.schedule.operator_queries import with_now
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

HISTORY_SHOWN = 30


class TenantFilter(ExactFilter):
    """Filter by tenant."""

    title = parameter_name = column = "tenant"


class OutcomeFilter(admin.SimpleListFilter):
    """Filter by accepted or rejected pushes."""

    title = parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("accepted", "accepted"), ("refused", "refused")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "accepted":
            return queryset.filter(outcome=ACCEPTED)
        return queryset.exclude(outcome=ACCEPTED) if self.value() == "refused" else queryset


@admin.register(PushLimitChange)
class PushLimitChangeAdmin(ActionAdmin):
    """Push limits with their history."""

    list_display = ("limit", "whose", "value_cell", "state", "set_by", "when")
    list_filter = (TenantFilter,)
    operator_actions = (SET_PUSH_LIMIT,)
    about = "Push limits by tenant, with history. Tenants without a row have the defaults."
    empty_list = "No limits set: the defaults apply to all tenants."

    def sections(self, row: PushLimitChange) -> Sequence[Section]:
        history = PushLimitChange.objects.filter(tenant=row.tenant, name=row.name).order_by("-id")[:HISTORY_SHOWN]
        built_in = DEFAULTS.value(PushLimitName(row.name))
        return [
            Facts(
                title="Limit",
                rows=[
                    ("Limit", show.code(row.name)),
                    ("Whose", self.whose(row)),
                    ("Value", self.value_cell(row)),
                    ("Built-in value", show.count_text(built_in)),
                    ("Why", row.why),
                ],
            ),
            Table(
                title="History",
                headers=("Value", "Now", "Set by", "When", "Why"),
                rows=[(self.value_cell(one), self.state(one), one.actor, self.when(one), one.why) for one in history],
            ),
        ]

    @display(description="Limit")
    def limit(self, row: PushLimitChange) -> SafeString:
        return show.code(row.name)

    @display(description="Whose")
    def whose(self, row: PushLimitChange) -> str:
        return row.tenant or "all tenants"

    @display(description="Value")
    def value_cell(self, row: PushLimitChange) -> str:
        return "removed" if row.value is None else show.count_text(row.value)

    @display(description="Now")
    def state(self, row: PushLimitChange) -> SafeString:
        return show.badge("replaced", "quiet") if row.is_superseded else show.badge("in force", "busy")

    @display(description="Set by")
    def set_by(self, row: PushLimitChange) -> SafeString | str:
        return show.note(row.actor, row.why)

    @display(description="When")
    def when(self, row: PushLimitChange) -> SafeString | str:
        return show.moment_age(row.at, timezone.now())


@admin.register(PushCount)
class PushCountAdmin(ReadOnlyAdmin):
    """Accepted and rejected pushes by tenant."""

    list_display = ("whose", "outcome_cell", "count_cell", "size", "last", "last_message")
    list_filter = (OutcomeFilter, TenantFilter)
    about = (
        "Pushed profiles by tenant: accepted (durable and registered), or rejected with the reason. "
        "'unauthenticated' are senders without a valid credential. Web processes add their counts every 2 s."
    )
    empty_list = "No pushes."

    def get_queryset(self, request: HttpRequest) -> QuerySet[PushCount]:
        return with_now(PushCount.objects.all(), dialect.clock_ms())

    def heading(self, row: PushCount) -> str:
        return f"{row.outcome} of {self.whose(row)}"

    def sections(self, row: PushCount) -> Sequence[Section]:
        return [
            Facts(
                title="Pushes",
                rows=[
                    ("Tenant", self.whose(row)),
                    ("Outcome", self.outcome_cell(row)),
                    ("How many", self.count_cell(row)),
                    ("Bytes", self.size(row)),
                    ("Last", self.last(row)),
                    ("Last error message", row.last_message or show.NOTHING),
                ],
            )
        ]

    @display(description="Tenant")
    def whose(self, row: PushCount) -> str:
        return row.tenant or "unauthenticated"

    @display(description="Outcome")
    def outcome_cell(self, row: PushCount) -> SafeString:
        return show.code(row.outcome)

    @display(description="How many")
    def count_cell(self, row: PushCount) -> str:
        return show.count_text(row.count)

    @display(description="Bytes")
    def size(self, row: PushCount) -> str:
        return show.size_text(row.bytes)

    @display(description="Last")
    def last(self, row: WithAnnotations[PushCount, NowColumns]) -> SafeString | str:
        return show.age(row.last_at_ms, row.now_ms)
