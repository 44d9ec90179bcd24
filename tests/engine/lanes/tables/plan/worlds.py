"""Small timelines in memory for tests: days from 2024-02-01 on, sizes in MB."""

from __future__ import annotations

from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS
from engine.lanes.tables.plan.model import Segment, TaskState
from engine.lanes.tables.plan.policy import MB, QueueLimits, TimelinePolicy
from tests.scenarios.timeline_memory import MemoryTimeline

FIRST_MS = 1_706_745_600_000
NOW_MS = FIRST_MS + 60 * DAY_MS


def timeline(policy: TimelinePolicy | None = None, limits: QueueLimits | None = None) -> MemoryTimeline:
    """Return an empty data source on 2024-04-01."""
    return MemoryTimeline(policy or TimelinePolicy(), limits or QueueLimits(), now_ms=NOW_MS)


def day(number: float) -> int:
    """Return the beginning of a day; 1 is 2024-02-01."""
    return FIRST_MS + round((number - 1) * DAY_MS)


def put(
    world: MemoryTimeline, start: float, end: float, count: int, size: float, version: str = "1", first: int = 0
) -> list[Segment]:
    """Add the segments of one entry."""
    return [
        world.add(
            start_ms=day(start),
            end_ms=day(end),
            version=version,
            partition=first + number,
            size_bytes=round(size * MB),
        )
        for number in range(count)
    ]


def put_hours(world: MemoryTimeline, start: float, end: float, size: float, version: str = "1") -> list[Segment]:
    """Add one segment for each hour."""
    hours = range(day(start), day(end), HOUR_MS)
    return [world.add(start_ms=at, end_ms=at + HOUR_MS, version=version, size_bytes=round(size * MB)) for at in hours]


def running(world: MemoryTimeline) -> list[str]:
    """Return the names of the tasks that run, by time."""
    tasks = [task.entry for task in world.tasks.values() if task.entry.state is TaskState.RUNNING]
    return [task.name for task in sorted(tasks, key=lambda task: task.start_ms)]


def states(world: MemoryTimeline) -> dict[int, str]:
    """Return the state of each chunk by its day."""
    return {(start - FIRST_MS) // DAY_MS + 1: str(row.state) for start, row in sorted(world.rows.items())}


def days_of(world: MemoryTimeline, name: str) -> list[int]:
    """Return the days of a task."""
    return [(start - FIRST_MS) // DAY_MS + 1 for start, _ in world.tasks[name].entry.chunk_digests]
