"""Level queues and level policies in the admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from webadmin.adminkit import formatting as show
from webadmin.adminkit.actions import ActionAdmin
from webadmin.adminkit.filters import LevelFilter, ShardFilter, TenantNameFilter
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.base.access.queries import audit_of
from webadmin.lanes.profiles.actions.policies import POLICY_ACTIONS, number_words
from webadmin.lanes.profiles.admin import block_page, queue_labels
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.operator_queries import queues_for_list
from webadmin.schedule.admin import job_page
from webadmin.schedule.admin.job_page import SEGMENT_TENANT
from webadmin.schedule.operator_queries import command_now_ms
from webadmin.schedule.wall_times import NowColumns

if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

CHANGES_SHOWN = 30


class ReadyFilter(admin.SimpleListFilter):
    """Filter of queues: non-empty ones, and those of which a job can be made now."""

    title = "ready"
    parameter_name = "fill"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("ready", "ready now"), ("waiting", "not yet"), ("empty", "empty")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "empty":
            return queryset.filter(block_count=0)
        if self.value() == "ready":
            return queryset.filter(ready_at_ms__lte=command_now_ms())
        return queryset.filter(ready_at_ms__gt=command_now_ms()) if self.value() == "waiting" else queryset


@admin.register(LevelQueue)
class LevelQueueAdmin(ReadOnlyAdmin):
    """Level queues by level."""

    list_display = ("place", "ready", "why", "blocks_cell", "oldest")
    list_filter = (ReadyFilter, LevelFilter, TenantNameFilter, ShardFilter)
    shortcuts = (("Ready now", "fill=ready"), ("Not yet", "fill=waiting"), ("Empty", "fill=empty"))
    about = "Blocks waiting to be merged, by tenant, shard and level, with the time and reason of readiness."
    empty_list = "No queues. A queue appears with the first block of its tenant, shard and level."

    def get_queryset(self, request: HttpRequest) -> QuerySet[LevelQueue]:
        return queues_for_list(command_now_ms())

    def heading(self, row: LevelQueue) -> str:
        return f"Queue: {row}"

    def sections(self, row: WithAnnotations[LevelQueue, NowColumns]) -> Sequence[Section]:
        return [
            Facts(
                title="Queue",
                rows=[
                    ("Ready", show.note(self.ready(row), self.why(row))),
                    ("Lane", row.lane),
                    ("Tenant", self.tenant_cell(row)),
                    ("Shard, level", f"shard {row.shard}, level {row.level}"),
                    ("Blocks", self.blocks_cell(row)),
                    ("Oldest arrival", self.oldest(row)),
                    ("Newest arrival", show.age(row.newest_arrival_ms, row.now_ms, clock=show.COMMAND_TIME)),
                ],
            ),
            block_page.queue_table(row, row.now_ms),
        ]

    @display(description="Queue")
    def place(self, row: LevelQueue) -> SafeString:
        return show.note(show.name(self.tenant_cell(row)), f"{show.place_text(row.shard, row.level)} · {row.lane}")

    @display(description="Ready")
    def ready(self, row: LevelQueue) -> SafeString | str:
        return queue_labels.ready_badge(queue_labels.QueueFill.from_row(row))

    @display(description="Why")
    def why(self, row: LevelQueue) -> str:
        return queue_labels.ready_reason(queue_labels.QueueFill.from_row(row))

    @display(description="Tenant")
    def tenant_cell(self, row: LevelQueue) -> str:
        return job_page.tenant_text(row.tenant)

    @display(description="Blocks")
    def blocks_cell(self, row: LevelQueue) -> SafeString:
        return show.note(show.count_text(row.block_count), show.size_text(row.byte_count))

    @display(description="Oldest arrival")
    def oldest(self, row: WithAnnotations[LevelQueue, NowColumns]) -> SafeString | str:
        return show.age(row.oldest_arrival_ms, row.now_ms, clock=show.COMMAND_TIME)


class OwnerFilter(admin.SimpleListFilter):
    """Filter of policies: the default ones, or those of single tenants."""

    title = "whose"
    parameter_name = "whose"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin[Any]) -> list[tuple[str, str]]:
        return [("everybody", "all tenants"), ("own", "single tenants")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "everybody":
            return queryset.filter(tenant="")
        return queryset.exclude(tenant="") if self.value() == "own" else queryset


@admin.register(LevelPolicy)
class LevelPolicyAdmin(ActionAdmin):
    """Level policies: when the blocks of a level are merged."""

    list_display = ("place", "tenant_cell", "blocks_max", "age", "spread", "size", "result_size", "partial_batches")
    list_filter = (OwnerFilter, LevelFilter, TenantNameFilter)
    shortcuts = (("Everybody's", "whose=everybody"), ("Tenants' own", "whose=own"))
    about = (
        "When queued blocks of a level become a job: by number, age or bytes. A tenant's own policy replaces that "
        "for all tenants. Changes apply from the next poll on; the preview shows the jobs it would plan."
    )
    empty_list = "No level policies: no jobs are planned."
    operator_actions = POLICY_ACTIONS

    def heading(self, row: LevelPolicy) -> str:
        return f"Policy of {row}"

    def sections(self, row: LevelPolicy) -> Sequence[Section]:
        waiting = {"level": str(row.level)} | ({"tenant": row.tenant} if row.tenant else {})
        return [
            Facts(
                title="Policy",
                rows=[
                    ("Lane, level", f"{row.lane}, level {row.level}"),
                    ("Whose", self.tenant_cell(row)),
                    ("Maximum blocks per job", row.blocks_max),
                    ("Maximum age before a smaller job is planned", self.age(row)),
                    ("Maximum spread of creation times in a job", self.spread(row)),
                    ("Maximum source bytes per job", self.size(row)),
                    ("Maximum bytes per result block", self.result_size(row)),
                    ("Merging of partial batches across shards", self.partial_batches(row)),
                    ("Queues of the level", show.link(show.list_address(LevelQueue, **waiting), "show")),
                ],
            ),
            self._history(row),
        ]

    def _history(self, row: LevelPolicy) -> Table:
        return Table(
            title="Changes",
            headers=("When (UTC)", "Who", "What", "Why", "Command"),
            rows=[
                (
                    show.moment_text(show.epoch_ms(entry.at)),
                    entry.actor,
                    change_words(entry.detail.get("before"), entry.detail.get("after")),
                    entry.detail.get("why") or show.NOTHING,
                    show.command_link(entry.detail["command"]) if entry.detail.get("command") else show.NOTHING,
                )
                for entry in audit_of("change_level_policy", str(row), CHANGES_SHOWN)
            ],
            empty="No changes: the defaults apply.",
        )

    @display(description="Level")
    def place(self, row: LevelPolicy) -> SafeString:
        return show.note(f"level {row.level}", row.lane)

    @display(description="Whose")
    def tenant_cell(self, row: LevelPolicy) -> str:
        return row.tenant or ("all tenants" if row.level else SEGMENT_TENANT)

    @display(description="Age")
    def age(self, row: LevelPolicy) -> str:
        return show.duration_text(row.age_seconds * 1000)

    @display(description="Spread")
    def spread(self, row: LevelPolicy) -> str:
        return show.duration_text(row.spread_seconds * 1000)

    @display(description="Maximum job bytes")
    def size(self, row: LevelPolicy) -> str:
        return show.size_text(row.bytes_max) if row.bytes_max else "any"

    @display(description="Maximum block bytes")
    def result_size(self, row: LevelPolicy) -> str:
        return show.size_text(row.result_bytes_max) if row.result_bytes_max else "any"

    @display(description="Partial batches")
    def partial_batches(self, row: LevelPolicy) -> str:
        if not row.partial_batch_bytes:
            return "off"
        after = show.duration_text(row.partial_batch_age_seconds * 1000)
        return f"below {show.size_text(row.partial_batch_bytes)} after {after}"


def change_words(before: object, after: object) -> str:
    """Return the numbers of a policy that a change set, with old and new values."""
    if not isinstance(after, dict):
        return "removed: the default applies"
    was = before if isinstance(before, dict) else {}
    changed = [
        f"{number_words(name)} {was[name]} to {after[name]}" if name in was else f"{number_words(name)} {after[name]}"
        for name in POLICY_RULES
        if name in after and was.get(name) != after[name]
    ]
    return ", ".join(changed) or "nothing"
