"""Tombstones in the admin: objects of removed blocks to be deleted, with state and age of the deletion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from webadmin.adminkit import formatting as show
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Notice, Section
from webadmin.lanes.profiles import deletion_queries as queries
from webadmin.lanes.profiles.models import RemovalCause, Tombstone
from webadmin.schedule.operator_queries import command_now_ms, with_now
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

CAUSES = {
    RemovalCause.REPLACED: ("merged", "a job merged it into other blocks"),
    RemovalCause.RETENTION: ("retention", "all of its data was past the retention of its tenants"),
    RemovalCause.REQUEST: ("deleted on request", "all of it was deleted on request"),
    RemovalCause.REPAIR: ("repaired", "a record in the bucket says that it was merged or removed before"),
}


class DeletionFilter(admin.SimpleListFilter):
    """Filter of objects by state of their deletion."""

    title = "deletion"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        states = [("waiting", "waits for its delay"), ("due", "due"), ("failing", "deletion failed")]
        return [*states, ("deleted", "deleted")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "failing":
            return queries.tombstones_that_fail(queryset)
        if self.value() == "deleted":
            return queryset.exclude(deleted_at_ms=None)
        if self.value() == "waiting":
            return queryset.filter(deleted_at_ms=None, eligible_at_ms__gte=command_now_ms())
        if self.value() == "due":
            return queryset.filter(deleted_at_ms=None, eligible_at_ms__lt=command_now_ms())
        return queryset


class CauseFilter(admin.SimpleListFilter):
    """Filter of objects by cause of their block's removal."""

    title = parameter_name = "cause"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [(cause.value, words) for cause, (words, _) in CAUSES.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(cause=self.value()) if self.value() in RemovalCause.values else queryset


@admin.register(Tombstone)
class TombstoneAdmin(ReadOnlyAdmin):
    """Removed blocks whose objects are deleted or will be."""

    list_display = ("id_cell", "deletion", "cause_cell", "size", "removed", "job_cell", "command")
    list_filter = (DeletionFilter, CauseFilter)
    shortcuts = (
        ("Waiting", "state=waiting"),
        ("Due", "state=due"),
        ("Deletion failed", "state=failing"),
        ("Deleted", "state=deleted"),
    )
    about = (
        "Blocks removed from the index. Their objects are kept for a grace period for running readers and are then "
        "deleted by a control task; failed deletions are retried."
    )
    empty_list = "No tombstones: no block was replaced or dropped."

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tombstone]:
        rows = Tombstone.objects.select_related("block", "job")
        return with_now(rows.defer("block__metadata", "job__spec", "job__result"), command_now_ms())

    def heading(self, row: Tombstone) -> str:
        return f"Tombstone of {row.block.ulid}"

    def notices(self, row: Tombstone) -> Sequence[Notice]:
        if row.deleted_at_ms is None and row.last_error:
            tries = show.counted(row.attempts, "attempt")
            text = f"The store did not delete the object after {tries}: {row.last_error}"
            return [Notice(tone="bad", text=text)]
        return ()

    def sections(self, row: WithAnnotations[Tombstone, NowColumns]) -> Sequence[Section]:
        dispatched = show.age(row.dispatched_at_ms, row.now_ms, clock=show.COMMAND_TIME)
        retries = row.deleted_at_ms is None and row.last_error
        return [
            Facts(
                title="Tombstone",
                rows=[
                    ("Block", show.row_link(row.block, show.code(row.block.ulid))),
                    ("Object key", show.code(row.block.object_key)),
                    ("Size", self.size(row)),
                    ("Reason for removal", CAUSES[RemovalCause(row.cause)][1]),
                    ("When", self.removed(row)),
                    ("By job", self.job_cell(row)),
                    ("By command", self.command(row)),
                ],
            ),
            Facts(
                title="Deletion of the object",
                rows=[
                    ("State", self.deletion(row)),
                    ("Deletion allowed from", f"{show.moment_text(row.eligible_at_ms)} command time"),
                    ("Deletion requested", dispatched if row.dispatched_at_ms else "not yet"),
                    ("Attempts", row.attempts),
                    ("Last error", row.last_error or show.NOTHING),
                    (
                        "Next retry",
                        f"{show.moment_text(row.retry_at_ms)} command time" if retries else show.NOTHING,
                    ),
                    (
                        "Confirmed",
                        show.age(row.deleted_at_ms, row.now_ms, clock=show.COMMAND_TIME)
                        if row.deleted_at_ms
                        else "not yet",
                    ),
                ],
            ),
        ]

    @display(description="Block")
    def id_cell(self, row: Tombstone) -> SafeString:
        return show.code(row.block.ulid)

    @display(description="Object")
    def deletion(self, row: WithAnnotations[Tombstone, NowColumns]) -> SafeString:
        if row.deleted_at_ms is not None:
            return show.badge("deleted", "quiet", f"{show.moment_text(row.deleted_at_ms)} command time")
        if row.last_error:
            again_ms = max(0, row.retry_at_ms - row.now_ms)
            again = f"again in {show.duration_text(again_ms)}" if again_ms else "again with the next run"
            return show.note(
                show.badge("not deleted", "bad", row.last_error),
                f"{show.counted(row.attempts, 'try', 'tries')}, {again}",
            )
        wait_ms = row.eligible_at_ms - row.now_ms
        if wait_ms >= 0:
            return show.badge(f"deleted in {show.duration_text(wait_ms)}", "busy")
        since = show.duration_text(-wait_ms)
        return show.note(show.badge("requested" if row.dispatched_at_ms else "due", "warn"), f"due since {since}")

    @display(description="Why")
    def cause_cell(self, row: Tombstone) -> SafeString:
        return show.hint(*CAUSES[RemovalCause(row.cause)])

    @display(description="Size")
    def size(self, row: Tombstone) -> str:
        return show.size_text(row.block.size_bytes)

    @display(description="Removed from the index")
    def removed(self, row: WithAnnotations[Tombstone, NowColumns]) -> SafeString | str:
        return show.age(row.created_at_ms, row.now_ms, clock=show.COMMAND_TIME)

    @display(description="By job")
    def job_cell(self, row: Tombstone) -> SafeString | str:
        return show.row_link(row.job, show.short_code(row.job.name) if row.job else "")

    @display(description="By command")
    def command(self, row: Tombstone) -> SafeString:
        return show.command_link(row.command_index)
