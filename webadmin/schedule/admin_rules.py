"""The rules of the schedule in the admin: limits in force, and level policies with their history."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.decorators import display

from engine.lanes.profiles.plan.policy_rules import POLICY_RULES
from engine.schedule.limits import LimitName
from webadmin.adminkit import formatting as show
from webadmin.adminkit.filters import LevelFilter, TenantNameFilter
from webadmin.adminkit.orders import OrderedAdmin
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Facts, Section, Table
from webadmin.base.access.queries import audit_of
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.admin_operations import limit_value, until_cell
from webadmin.schedule.command_log import CommandTime, read_time
from webadmin.schedule.job_page import SEGMENT_TENANT
from webadmin.schedule.models import LevelPolicy, LevelQueue, Limits
from webadmin.schedule.operation_models import LimitChange
from webadmin.schedule.policy_orders import POLICY_ORDERS, number_words
from webadmin.schedule.queries import LIMIT_COLUMNS

CHANGES_SHOWN = 30
MEANINGS = {
    LimitName.FAILURES_MAX: "Failures until a job is parked",
    LimitName.QUEUE_MAX: "Jobs not done at most",
    LimitName.LEASE_SECONDS: "Lease: how long a worker may be silent",
    LimitName.CLEANUP_DELAY_SECONDS: "From replacement to deletion of an object",
    LimitName.TASK_MEMORY_BYTES: "Memory of one Spark task",
}


@admin.register(Limits)
class LimitsAdmin(ReadOnlyAdmin):
    """The limits that hold for everything."""

    list_display = ("__str__", "lease", "failures_max", "queue", "memory", "delay")
    about = (
        "Bounds of the whole schedule as they are while nobody has set another; open the row to see what is in force. "
        "Limits of single lanes, tenants and jobs are among those set at run time."
    )

    def heading(self, row: Limits) -> str:
        return "Limits"

    def sections(self, row: Limits) -> Sequence[Section]:
        time = read_time()
        in_force = queries.global_limits_in_force(time.now_ms)
        return [
            Table(
                title="In force for everything",
                headers=("Limit", "In force", "Holds", "Set by", "Otherwise", "Order"),
                rows=[self._limit(row, LimitName(name), in_force.get(name), time) for name in LIMIT_COLUMNS],
                more="Caps, weights and limits of single lanes, tenants and jobs are among those set at run time.",
            ),
        ]

    def _limit(self, row: Limits, name: LimitName, change: LimitChange | None, time: CommandTime) -> tuple[object, ...]:
        otherwise = limit_value(name, getattr(row, name))
        order = reverse("admin:schedule_limitchange_order", args=["set-limit"], query={"name": name.value})
        change_link = show.link(order, "Change")
        if change is None:
            return (MEANINGS[name], otherwise, "until somebody sets another", show.NOTHING, otherwise, change_link)
        value = show.row_link(change, limit_value(name, change.value))
        until = until_cell(change.valid_until_ms, None, now_ms=time.now_ms, wall_ms=time.wall_ms)
        return (MEANINGS[name], value, until, show.note(change.actor, change.why), otherwise, change_link)

    @display(description="Lease")
    def lease(self, row: Limits) -> str:
        return show.duration_text(row.lease_seconds * 1000)

    @display(description="Jobs at most")
    def queue(self, row: Limits) -> str:
        return limit_value(LimitName.QUEUE_MAX, row.queue_max)

    @display(description="Task memory")
    def memory(self, row: Limits) -> str:
        return show.size_text(row.task_memory_bytes)

    @display(description="Deletion delay")
    def delay(self, row: Limits) -> str:
        return show.duration_text(row.cleanup_delay_seconds * 1000)


class OwnerFilter(admin.SimpleListFilter):
    """Policies of everybody, or of single tenants."""

    title = "whose"
    parameter_name = "whose"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        return [("everybody", "everybody's"), ("own", "tenants' own")]

    def queryset(self, request: HttpRequest, queryset: QuerySet) -> QuerySet:
        if self.value() == "everybody":
            return queryset.filter(tenant="")
        return queryset.exclude(tenant="") if self.value() == "own" else queryset


@admin.register(LevelPolicy)
class LevelPolicyAdmin(OrderedAdmin):
    """When the blocks of a level are merged."""

    list_display = ("place", "tenant_cell", "blocks_max", "age", "spread", "size", "result_size", "remnants")
    list_filter = (OwnerFilter, LevelFilter, TenantNameFilter)
    shortcuts = (("Everybody's", "whose=everybody"), ("Tenants' own", "whose=own"))
    about = (
        "When the queued blocks of a level make a job: enough of them, an old one, or enough bytes. A tenant's own "
        "policy holds for it instead of everybody's. Changes hold from the next poll on; a preview says what it plans."
    )
    empty_list = "No level policy: no job will be planned."
    orders = POLICY_ORDERS

    def heading(self, row: LevelPolicy) -> str:
        return f"Policy of {row}"

    def sections(self, row: LevelPolicy) -> Sequence[Section]:
        waiting = {"level": row.level} | ({"tenant": row.tenant} if row.tenant else {})
        return [
            Facts(
                title="Policy",
                rows=[
                    ("Lane, level", f"{row.lane}, level {row.level}"),
                    ("Whose", self.tenant_cell(row)),
                    ("Blocks of a job at most", row.blocks_max),
                    ("Age at which fewer go too", self.age(row)),
                    ("Creation times of a job's blocks lie within", self.spread(row)),
                    ("Source bytes of a job at most", self.size(row)),
                    ("Bytes of a result block at most", self.result_size(row)),
                    ("Remnants of several shards together", self.remnants(row)),
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
            empty="Nobody has changed it: these are the numbers it came with.",
        )

    @display(description="Level")
    def place(self, row: LevelPolicy) -> SafeString:
        return show.note(f"level {row.level}", row.lane)

    @display(description="Whose")
    def tenant_cell(self, row: LevelPolicy) -> str:
        return row.tenant or ("everybody" if row.level else SEGMENT_TENANT)

    @display(description="Age")
    def age(self, row: LevelPolicy) -> str:
        return show.duration_text(row.age_seconds * 1000)

    @display(description="Spread")
    def spread(self, row: LevelPolicy) -> str:
        return show.duration_text(row.spread_seconds * 1000)

    @display(description="Job bytes at most")
    def size(self, row: LevelPolicy) -> str:
        return show.size_text(row.bytes_max) if row.bytes_max else "any"

    @display(description="Block bytes at most")
    def result_size(self, row: LevelPolicy) -> str:
        return show.size_text(row.result_bytes_max) if row.result_bytes_max else "any"

    @display(description="Remnants")
    def remnants(self, row: LevelPolicy) -> str:
        if not row.remnant_bytes:
            return "stay in their shard"
        after = show.duration_text(row.remnant_age_seconds * 1000)
        return f"below {show.size_text(row.remnant_bytes)} after {after}"


def change_words(before: object, after: object) -> str:
    """Return which numbers of a policy a change set, from what to what."""
    if not isinstance(after, dict):
        return "taken back: as everybody's"
    was = before if isinstance(before, dict) else {}
    changed = [
        f"{number_words(name)} {was[name]} to {after[name]}" if name in was else f"{number_words(name)} {after[name]}"
        for name in POLICY_RULES
        if name in after and was.get(name) != after[name]
    ]
    return ", ".join(changed) or "nothing"
