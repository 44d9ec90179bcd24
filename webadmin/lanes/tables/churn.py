"""Write amplification of a table: bytes rewritten per day, and chunks that are rewritten repeatedly."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from webadmin.base.database import dialect
from webadmin.lanes.tables.models import DAY_S, DataSource, Registration
from webadmin.lanes.tables.states import TaskState
from webadmin.lanes.tables.status import COMMITTED, RECENT_MAX
from webadmin.lanes.tables.task_models import Task, TaskChunk

DAYS = 14
AGAIN_DAYS = 7
AGAIN_MIN = 4
"""Commits of one chunk within ``AGAIN_DAYS`` from which it counts as rewritten repeatedly.

One late file per day causes one commit per day, which an operator should know.
"""
AGAIN_SHOWN = 20
DAY_MS = DAY_S * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One day in UTC: bytes registered, and bytes of chunks that tasks read and wrote."""

    start_ms: int
    arrived_bytes: int
    read: int
    written: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Churn:
    """The last days, newest first, and the chunks (start, end, commits) that were rewritten repeatedly."""

    days: tuple[Day, ...]
    again: tuple[tuple[int, int, int], ...]
    read_again: int
    """Bytes read by commits of chunks that were already committed within ``AGAIN_DAYS``."""

    @property
    def is_alarming(self) -> bool:
        """Return whether an operator should be alerted."""
        return bool(self.again)


def read_churn(source: DataSource) -> Churn:
    """Return the recent rewrites of a table, from its latest tasks and registrations."""
    now_ms = dialect.clock_ms()
    first_ms = now_ms - now_ms % DAY_MS - (DAYS - 1) * DAY_MS
    arrived_bytes: defaultdict[int, int] = defaultdict(int)
    newest = Registration.objects.filter(source=source).order_by("-id").values_list("at_ms", "byte_count")
    for at_ms, size in newest[:RECENT_MAX]:
        arrived_bytes[at_ms - at_ms % DAY_MS] += size
    read: defaultdict[int, int] = defaultdict(int)
    written: defaultdict[int, int] = defaultdict(int)
    commits: Counter[tuple[int, int]] = Counter()
    read_again = 0
    for start_ms, end_ms, ended_at_ms, size, output_bytes in _commits(source, first_ms):
        day_ms = ended_at_ms - ended_at_ms % DAY_MS
        read[day_ms] += size
        written[day_ms] += output_bytes or 0
        if ended_at_ms >= now_ms - AGAIN_DAYS * DAY_MS:
            read_again += size if commits[start_ms, end_ms] else 0
            commits[start_ms, end_ms] += 1
    again = [(start, end, count) for (start, end), count in commits.most_common() if count >= AGAIN_MIN]
    starts = [first_ms + place * DAY_MS for place in reversed(range(DAYS))]
    return Churn(
        days=tuple(
            Day(start_ms=start, arrived_bytes=arrived_bytes[start], read=read[start], written=written[start])
            for start in starts
        ),
        again=tuple(again),
        read_again=read_again,
    )


def _commits(source: DataSource, since_ms: int) -> list[tuple[int, int, int, int, int | None]]:
    """Return the commits of chunks since ``since_ms`` in order, from the table's latest tasks."""
    last = Task.objects.filter(source=source, state=TaskState.DONE).order_by("-id").values_list("id", flat=True)
    first = last[RECENT_MAX : RECENT_MAX + 1].first() or 0
    rows = TaskChunk.objects.filter(task__gt=first, source=source, outcome__in=COMMITTED, ended_at_ms__gte=since_ms)
    names = ("start_ms", "end_ms", "ended_at_ms", "byte_count", "output_bytes")
    return list(rows.order_by("ended_at_ms", "id").values_list(*names))
