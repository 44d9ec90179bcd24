"""Time to plan a million segments in a hundred thousand chunks, and again after one in a hundred changed.

A data source of eleven years by the hour: most hours have a few large files or many small ones, some were partly
overwritten, some files cross the boundary of two hours. The first figure is the plan of all: every chunk evaluated,
every task. The second is a cycle of the controller after files were added to one chunk of a hundred, with those chunks
and related ones as its snapshot. The creation of snapshots is not included, because reading them is not part of the
planner.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace

from engine.lanes.tables.plan import states
from engine.lanes.tables.plan.cycle import queued, run_cycle
from engine.lanes.tables.plan.forecast import apply_plan
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS, Granularity
from engine.lanes.tables.plan.model import Action, Chunk, Extent, PlannedTask, Segment, StoredChunk, TimelinePlan
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import MB, QueueLimits, TimelinePolicy
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot
from engine.lanes.tables.plan.visibility import instant_version
from tests.bench.figures import Figures

NAME = "timeline_plan"
SOURCE = "table"
CHUNKS, SEGMENTS = 100_000, 1_000_000
CHANGED = CHUNKS // 100
LATE = 5
START_MS = 1_356_998_400_000
POLICY = TimelinePolicy(granularity=Granularity(period="hour"))
LIMITS = QueueLimits(running_max=100, waiting_max=1_000)


def run(full: bool = False) -> Figures:
    """Run the benchmark; ``--full`` repeats five times instead of twice. The minimum counts."""
    segments = snapshot()
    now_ms = START_MS + CHUNKS * HOUR_MS
    gc.collect()
    gc.freeze()  # Exclude the caller's objects from garbage collection.
    times, used, again, again_used = [], [], [], []
    for _ in range(5 if full else 2):
        began, began_used = time.perf_counter(), time.process_time()
        plan = plan_timeline(SOURCE, segments, POLICY, now_ms=now_ms)
        times.append(time.perf_counter() - began)
        used.append(time.process_time() - began_used)
    assert len(plan.chunks) == CHUNKS
    changed = after_change(plan, segments, now_ms)
    for _ in range(10 if full else 4):
        began, began_used = time.perf_counter(), time.process_time()
        decided = run_cycle(changed)
        again.append(time.perf_counter() - began)
        again_used.append(time.process_time() - began_used)
    assert CHANGED <= len(decided.analysed) < 2 * CHANGED
    assert decided.created or decided.rows
    second = plan_timeline(SOURCE, apply_plan(segments, plan, POLICY), POLICY, now_ms=now_ms)
    assert not second.tasks, "the second plan is empty"
    return Figures(
        parameters={
            "segments": len(segments),
            "chunks": len(plan.chunks),
            "tasks": len(plan.tasks),
            "changed_chunks": CHANGED,
            "analysed_again": len(decided.analysed),
        },
        figures={
            "s": min(times),
            "cpu_s": min(used),
            "replan_s": min(again),
            "replan_cpu_s": min(again_used),
            "second_plan_tasks": len(second.tasks),
            "us_per_segment": min(used) / len(segments) * 1e6,
        },
    )


def snapshot(chunks: int = CHUNKS, segments: int = SEGMENTS) -> list[Segment]:
    """Return segments, ten per hour on average."""
    found: list[Segment] = []
    version = instant_version(START_MS)
    newer = instant_version(START_MS + DAY_MS)

    def add(start_ms: int, length_ms: int, count: int, size: int, of_version: str = version) -> None:
        for number in range(count):
            found.append(
                Segment(
                    key=len(found) + 1,
                    start_ms=start_ms,
                    end_ms=start_ms + length_ms,
                    version=of_version,
                    partition=number,
                    size_bytes=size,
                )
            )

    for hour in range(chunks):
        start_ms = START_MS + hour * HOUR_MS
        kind = hour % 20
        if kind < 6:
            add(start_ms, HOUR_MS, 4, 480 * MB)
        elif kind < 16:
            add(start_ms, HOUR_MS, 14, 5 * MB + hour)
        elif kind == 16:
            add(start_ms, HOUR_MS // 2, 6, 20 * MB)
            add(start_ms + HOUR_MS // 2, HOUR_MS // 2, 6, 20 * MB)
        elif kind == 17:
            add(start_ms, HOUR_MS, 6, 50 * MB)
            add(start_ms, HOUR_MS // 2, 6, 5 * MB, newer)
        elif kind == 18:
            add(start_ms, 2 * HOUR_MS, 6, 90 * MB)
        else:
            add(start_ms, HOUR_MS, 6, 90 * MB, newer)
    missing = segments - len(found)
    add(START_MS, HOUR_MS, max(missing, 0), MB, newer)
    found.sort(key=lambda one: (one.start_ms, one.end_ms, one.version, one.partition))
    return found


def after_change(plan: TimelinePlan, segments: list[Segment], now_ms: int) -> CycleSnapshot:
    """Return the input of a cycle after files were added to one chunk of a hundred.

    The best tasks fill the queue; the chunks of the others are postponed.
    """
    fp = POLICY.fingerprint()
    best = sorted(plan.tasks, key=lambda task: (-task.priority, -task.end_ms))[: LIMITS.waiting_max]
    holder = {chunk.start_ms: task for task in best for chunk in task.chunks}
    starts = {START_MS + (7 + 100 * number) * HOUR_MS for number in range(CHANGED)}
    here: dict[int, list[Segment]] = {}
    for one in segments:
        for start_ms in range(one.start_ms - one.start_ms % HOUR_MS, one.end_ms, HOUR_MS):
            here.setdefault(start_ms, []).append(one)
    known = starts | {chunk.start_ms for start in starts if start in holder for chunk in holder[start].chunks}
    chunks = {chunk.start_ms: chunk for chunk in plan.chunks}
    late = [
        replace(here[start_ms][0], key=10 * SEGMENTS + 10 * number + more, partition=1_000 + more)
        for number, start_ms in enumerate(sorted(starts))
        for more in range(LATE)
    ]
    return CycleSnapshot(
        now_ms=now_ms,
        sources=(
            SourceSnapshot(
                source=SOURCE,
                policy=POLICY,
                segments=tuple([one for start_ms in sorted(starts) for one in here[start_ms]] + late),
                extents=tuple(Extent(start_ms=start_ms, end_ms=start_ms + HOUR_MS) for start_ms in sorted(starts)),
                rows=tuple(_row(chunks[start_ms], fp, holder) for start_ms in sorted(known)),
                latest_end_ms=now_ms,
            ),
        ),
        tasks=tuple(queued(task, now_ms=now_ms, policy=POLICY) for task in best),
        limits=LIMITS,
    )


def _row(chunk: Chunk, fp: str, holder: dict[int, PlannedTask]) -> StoredChunk:
    row = states.analysed(None, SOURCE, chunk, fp)
    task = holder.get(chunk.start_ms)
    if task is not None:
        return states.given(row, task.name)
    return states.shed(row) if chunk.action is Action.COMPACT else row
