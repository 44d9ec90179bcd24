"""Load of the timeline controller in a day with three times the capacity: are chunks evaluated without need?

Small files arrive in random hours of a year, a few across the boundary of two hours, at three times the rate that four
workers can rewrite. Every minute the shipped cycle runs in memory: tasks start, are postponed, return, commit. The
figures are the chunks whose contents changed between two cycles and those that the rules were evaluated for.
"""

from __future__ import annotations

import random

from engine.lanes.tables.plan.forecast import forecast_plan
from engine.lanes.tables.plan.granularity import HOUR_MS, MINUTE_MS, Granularity
from engine.lanes.tables.plan.model import ChunkState, TaskState
from engine.lanes.tables.plan.policy import MB, QueueLimits, TimelinePolicy
from engine.lanes.tables.plan.visibility import instant_version
from tests.bench.figures import Figures, cpu_seconds
from tests.scenarios.timeline_memory import MemoryTimeline

NAME = "shedding"
START_MS = 1_706_745_600_000
HOURS = 24 * 365
WORKERS, TASK_MINUTES = 4, 6
OVERLOAD = 3
WAITING_MAX = 50
MINUTES, MINUTES_FULL = 24 * 60, 7 * 24 * 60
SPANNING_PERCENT = 2
FILES = 6


def run(full: bool = False, *, minutes: int = 0) -> Figures:
    """Run the benchmark; ``--full`` runs for a week. ``minutes`` is another duration (0: the default)."""
    minutes = minutes or (MINUTES_FULL if full else MINUTES)
    # Chunks are not adjacent, so that nearly every task is one of them.
    policy = TimelinePolicy(granularity=Granularity(period="hour"))
    limits = QueueLimits(running_max=WORKERS, waiting_max=WAITING_MAX, low_water=WAITING_MAX // 4)
    world = MemoryTimeline(policy, limits, now_ms=START_MS + HOURS * HOUR_MS)
    chance = random.Random(7)
    ends: dict[str, int] = {}
    counts = dict.fromkeys(("started", "shed", "readmitted"), 0)
    arrivals = 0.0

    def a_day() -> None:
        nonlocal arrivals
        for minute in range(minutes):
            world.now_ms += MINUTE_MS
            arrivals += OVERLOAD * WORKERS / TASK_MINUTES
            while arrivals >= 1:
                arrivals -= 1
                _arrive(world, chance)
            for name in [name for name, until in ends.items() if until <= minute]:
                del ends[name]
                world.commit(name, world.tasks[name].token)
            decided = world.turn()
            ends.update(dict.fromkeys(decided.started, minute + TASK_MINUTES))
            for word in counts:
                counts[word] += len(getattr(decided, word))
            waiting = sum(task.entry.state is TaskState.WAITING for task in world.tasks.values())
            assert waiting <= WAITING_MAX
            assert len(ends) == len(world.tasks) - waiting

    seconds = cpu_seconds(a_day)
    deferred = sum(row.state is ChunkState.DEFERRED for row in world.rows.values())
    assert counts["started"]
    assert deferred > WAITING_MAX, "it was no overload"
    left = forecast_plan("table", tuple(world.segments.values()), policy, now_ms=world.now_ms)
    assert left.plan.tasks
    assert left.is_fix_point, "the second plan is empty"
    return Figures(
        parameters={"minutes": minutes, "overload": OVERLOAD, "workers": WORKERS, "queue": WAITING_MAX, **counts},
        figures={
            "analyses_per_change": world.analyses / world.changes,
            "analyses_of_deferred_unchanged": world.needless,
            "changes": world.changes,
            "analyses": world.analyses,
            "deferred_at_the_end": deferred,
            "second_plan_chunks": len(left.again),
            "ms_per_turn": seconds / minutes * 1e3,
        },
    )


def _arrive(world: MemoryTimeline, chance: random.Random) -> None:
    """Add small files to one hour, and sometimes to two."""
    start_ms = START_MS + chance.randrange(HOURS) * HOUR_MS
    is_spanning = chance.randrange(100) < SPANNING_PERCENT
    first_ms = start_ms + HOUR_MS // 2 if is_spanning else start_ms
    version = instant_version(world.now_ms) + f"/{world.next_key:09d}"
    for number in range(FILES):
        world.add(
            start_ms=first_ms,
            end_ms=first_ms + HOUR_MS,
            version=version,
            partition=number,
            size_bytes=chance.randrange(1, 20) * MB,
        )
