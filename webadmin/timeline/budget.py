"""How many bytes of a table may be rewritten in a day, and what of that is used."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import Count, Sum

from engine.scheduling.model import JobState
from webadmin.database import dialect
from webadmin.timeline.churn import DAY_MS
from webadmin.timeline.models import DataSource
from webadmin.timeline.standing import COMMITTED, RECENT_MAX
from webadmin.timeline.states import TaskState
from webadmin.timeline.task_models import Task, TaskChunk


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Bytes a day (0: no limit), those used since midnight UTC (committed chunks, tasks that run), and what waits."""

    limit: int
    used: int
    waiting_tasks: int
    waiting_bytes: int
    refills_in_ms: int

    @property
    def left(self) -> int:
        """How many bytes may still be rewritten today."""
        return max(0, self.limit - self.used)

    @property
    def is_spent(self) -> bool:
        """Say whether nothing more may be rewritten today."""
        return bool(self.limit) and not self.left


def read_budget(source: DataSource) -> Budget:
    """Return the budget of today."""
    now_ms = dialect.clock_ms()
    midnight_ms = now_ms - now_ms % DAY_MS
    last = Task.objects.filter(source=source).order_by("-id").values_list("id", flat=True)
    first = last[RECENT_MAX : RECENT_MAX + 1].first() or 0
    done = TaskChunk.objects.filter(task__gt=first, source=source, outcome__in=COMMITTED, ended_at_ms__gte=midnight_ms)
    open_tasks = Task.objects.filter(source=source, state=TaskState.OPEN)
    sums = {
        row["job__state"]: (row["count"], int(row["size"]))
        for row in open_tasks.order_by().values("job__state").annotate(count=Count("id"), size=Sum("byte_count"))
    }
    waiting = [sums.get(state.value, (0, 0)) for state in (JobState.WAITING, JobState.BLOCKED)]
    used = int(done.aggregate(size=Sum("byte_count"))["size"] or 0) + sums.get(JobState.LEASED.value, (0, 0))[1]
    return Budget(
        limit=source.policy.bytes_per_day,
        used=used,
        waiting_tasks=sum(count for count, _ in waiting),
        waiting_bytes=sum(size for _, size in waiting),
        refills_in_ms=midnight_ms + DAY_MS - now_ms,
    )
