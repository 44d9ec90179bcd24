"""Daily limit of bytes to rewrite per table: the limit, its use, and the backlog."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Min, Sum

from webadmin.base.database import dialect
from webadmin.lanes.tables.churn import DAY_MS
from webadmin.lanes.tables.models import DataSource
from webadmin.lanes.tables.states import TaskState
from webadmin.lanes.tables.task_models import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limit in bytes per day (0: none), bytes of tasks admitted within the last 24 h, and bytes of waiting tasks.

    ``refills_in_ms`` is the time until the oldest of the admitted tasks no longer counts.
    """

    limit: int
    used: int
    waiting_tasks: int
    waiting_bytes: int
    refills_in_ms: int

    @property
    def left(self) -> int:
        """Return how many bytes may still be rewritten now."""
        return max(0, self.limit - self.used)

    @property
    def is_spent(self) -> bool:
        """Return whether the budget is used up."""
        return bool(self.limit) and not self.left


def read_budget(source: DataSource) -> Budget:
    """Return the rewrite budget of a table and its use."""
    now_ms = dialect.clock_ms()
    own = Task.objects.filter(source=source)
    used = own.filter(admitted_at_ms__gt=now_ms - DAY_MS).aggregate(size=Sum("byte_count"), first=Min("admitted_at_ms"))
    waiting = own.filter(state=TaskState.OPEN, admitted_at_ms=None).aggregate(size=Sum("byte_count"), count=Count("id"))
    return Budget(
        limit=source.policy.bytes_per_day,
        used=int(used["size"] or 0),
        waiting_tasks=waiting["count"],
        waiting_bytes=int(waiting["size"] or 0),
        refills_in_ms=used["first"] + DAY_MS - now_ms if used["first"] is not None else 0,
    )
