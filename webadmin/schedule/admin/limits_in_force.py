"""The limits in force in the admin."""

from __future__ import annotations

from collections.abc import Sequence

from django.contrib import admin
from django.urls import reverse
from unfold.decorators import display

from engine.schedule.limits import LimitName
from webadmin.adminkit import formatting as show
from webadmin.adminkit.read_only import ReadOnlyAdmin
from webadmin.adminkit.sections import Section, Table
from webadmin.schedule import operator_queries as queries
from webadmin.schedule.admin.operations import limit_value, until_cell
from webadmin.schedule.command_log import CommandTime, read_time
from webadmin.schedule.models import Limits
from webadmin.schedule.operation_models import LimitChange
from webadmin.schedule.queries import LIMIT_COLUMNS

MEANINGS = {
    LimitName.FAILURES_MAX: "Maximum failures per job",
    LimitName.QUEUE_MAX: "Maximum live jobs",
    LimitName.LEASE_SECONDS: "Lease duration",
    LimitName.CLEANUP_DELAY_SECONDS: "Delay between replacement and deletion of an object",
    LimitName.TASK_MEMORY_BYTES: "Memory of one Spark task",
}


@admin.register(Limits)
class LimitsAdmin(ReadOnlyAdmin):
    """The global limits."""

    list_display = ("__str__", "lease", "failures_max", "queue", "memory", "delay")
    about = (
        "Default limits of the schedule; open the row for the values in force. "
        "Limits of single lanes, tenants and jobs are among those set at run time."
    )

    def heading(self, row: Limits) -> str:
        return "Limits"

    def sections(self, row: Limits) -> Sequence[Section]:
        time = read_time()
        in_force = queries.global_limits_in_force(time.now_ms)
        return [
            Table(
                title="Global limits in force",
                headers=("Limit", "Value", "Valid until", "Set by", "Default", "Action"),
                rows=[self._limit(row, LimitName(name), in_force.get(name), time) for name in LIMIT_COLUMNS],
                more="Caps, weights and limits of single lanes, tenants and jobs are among those set at run time.",
            ),
        ]

    def _limit(self, row: Limits, name: LimitName, change: LimitChange | None, time: CommandTime) -> tuple[object, ...]:
        otherwise = limit_value(name, getattr(row, name))
        action = reverse("admin:schedule_limitchange_action", args=["set-limit"], query={"limit": name.value})
        change_link = show.link(action, "Change")
        if change is None:
            return (MEANINGS[name], otherwise, "built-in default", show.NOTHING, otherwise, change_link)
        value = show.row_link(change, limit_value(name, change.value))
        until = until_cell(change.valid_until_ms, None, now_ms=time.now_ms, wall_ms=time.wall_ms)
        return (MEANINGS[name], value, until, show.note(change.actor, change.why), otherwise, change_link)

    @display(description="Lease")
    def lease(self, row: Limits) -> str:
        return show.duration_text(row.lease_seconds * 1000)

    @display(description="Maximum jobs")
    def queue(self, row: Limits) -> str:
        return limit_value(LimitName.QUEUE_MAX, row.queue_max)

    @display(description="Task memory")
    def memory(self, row: Limits) -> str:
        return show.size_text(row.task_memory_bytes)

    @display(description="Deletion delay")
    def delay(self, row: Limits) -> str:
        return show.duration_text(row.cleanup_delay_seconds * 1000)
