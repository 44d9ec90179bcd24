"""Read the input of one controller cycle of a table: changed chunks, what shares segments with them, the queue."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from django.db.models import Q

from engine.lanes.tables.plan.granularity import Granularity
from engine.lanes.tables.plan.model import (
    Action,
    ChunkState,
    Extent,
    QueuedTask,
    StoredChunk,
)
from engine.lanes.tables.plan.model import Chunk as AnalysedChunk
from engine.lanes.tables.plan.model import TaskState as QueueState
from engine.lanes.tables.plan.policy import QueueLimits
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot
from engine.schedule.model import JobState
from webadmin.base.database import dialect
from webadmin.lanes.tables.budget import read_budget
from webadmin.lanes.tables.models import Chunk, ChunkOverride, DataSource, Policy, Segment
from webadmin.lanes.tables.policies import excluded_of, limits_of, policy_of
from webadmin.lanes.tables.segment_view import Interval, closure, latest_end
from webadmin.lanes.tables.states import ChunkOverrideKind, ChunkStatus, TaskState
from webadmin.lanes.tables.status import WITHOUT_TASK
from webadmin.lanes.tables.task_models import Task, TaskChunk, TaskDependency

CHUNKS_MAX = 5_000
"""Maximum number of changed chunks that one cycle analyses."""
_TUPLES = ("keys", "shared", "shared_tombstones")


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleView:
    """The snapshot of a cycle, and what applying its decisions needs: chunk rows by start, open tasks by name.

    ``revision`` and ``changes`` (by chunk) detect concurrent changes. ``is_rest`` is set if more chunks have changed
    than one cycle analyses.
    """

    snapshot: CycleSnapshot
    revision: int
    chunks: Mapping[int, Chunk]
    tasks: Mapping[str, Task]
    examined: Collection[int]
    is_rest: bool
    budget_left: int | None


def read_cycle(source: DataSource, *, room: int) -> CycleView:
    """Return the input of a cycle; ``room`` is the number of jobs that still fit on the schedule.

    Raises TableRefused for an invalid policy.
    """
    row = DataSource.objects.get(id=source.id)
    own = Policy.objects.get(source=row)
    now_ms = dialect.clock_ms()
    policy = policy_of(own, excluded_of(row))
    tasks = {task.name: task for task in open_tasks(row)}
    changed = _changed(row, now_ms)
    intervals = [(chunk.start_ms, chunk.end_ms) for chunk in changed]
    segments, extents = closure(row, policy.granularity, intervals)
    rows = _rows(row, policy.granularity, extents, tasks.values(), own.waiting_max)
    queue = queue_of(tasks.values())
    source_snapshot = SourceSnapshot(
        source=str(row.id),
        policy=policy,
        segments=tuple(segments),
        extents=tuple(Extent(start_ms=start, end_ms=end) for start, end in extents),
        rows=tuple(stored(chunk) for chunk in rows.values() if chunk.analysis),
        latest_end_ms=latest_end(row),
        urgent=_urgent(row, rows.values()),
    )
    snapshot = CycleSnapshot(
        now_ms=now_ms, sources=(source_snapshot,), tasks=tuple(queue), limits=queue_limits(own, tasks.values(), room)
    )
    examined = {
        start for start, chunk in rows.items() if any(low <= start and chunk.end_ms <= high for low, high in extents)
    }
    return CycleView(
        snapshot=snapshot,
        revision=row.revision,
        chunks=rows,
        tasks=tasks,
        examined=examined,
        is_rest=len(changed) >= CHUNKS_MAX,
        budget_left=budget_left(own),
    )


def _changed(source: DataSource, now_ms: int) -> list[Chunk]:
    """Return the chunks to analyse.

    These are changed chunks, chunks whose state may change with time alone, and chunks worth compacting without an open
    task.
    """
    due = Q(is_dirty=True) | Q(recheck_ms__lte=now_ms)
    chunks = Chunk.objects.filter(source=source).order_by("start_ms")
    changed = list(chunks.filter(due)[:CHUNKS_MAX])
    return changed + list(chunks.exclude(due).filter(WITHOUT_TASK)[: CHUNKS_MAX - len(changed)])


def _rows(
    source: DataSource,
    granularity: Granularity,
    extents: Sequence[Interval],
    tasks: Iterable[Task],
    waiting_max: int,
) -> dict[int, Chunk]:
    """Return the chunk rows of ``extents``, of overlapping tasks, and of the best deferred chunks, by start.

    Includes all chunks that share a segment with one of them.
    """
    rows = _within(source, extents)
    touching = [task for task in tasks if any(task.start_ms < high and low < task.end_ms for low, high in extents)]
    stretches = [(task.start_ms, task.end_ms) for task in touching]
    put_off = Chunk.objects.filter(source=source, state=ChunkStatus.DEFERRED, is_quarantined=False)
    best = list(put_off.order_by("-priority", "-end_ms", "start_ms")[:waiting_max])
    rows |= {chunk.start_ms: chunk for chunk in best} | _within(source, stretches)
    fresh = list(rows.values())
    while shared := {key for chunk in fresh for key in chunk.analysis.get("shared", ())}:
        ties = Segment.objects.filter(id__in=shared).values_list("start_ms", "end_ms").distinct()
        tied = _within(source, [granularity.hull(start, end) for start, end in ties])
        fresh = [chunk for start, chunk in tied.items() if start not in rows]
        rows |= {chunk.start_ms: chunk for chunk in fresh}
    return rows


def _within(source: DataSource, intervals: Iterable[Interval]) -> dict[int, Chunk]:
    found: dict[int, Chunk] = {}
    for start, end in intervals:
        own = Chunk.objects.filter(source=source, start_ms__gte=start, end_ms__lte=end)
        found |= {chunk.start_ms: chunk for chunk in own}
    return found


def open_tasks(source: DataSource) -> list[Task]:
    """Return the open tasks of a table with their jobs."""
    return list(Task.objects.filter(source=source, state=TaskState.OPEN).select_related("job").order_by("id"))


def queue_of(tasks: Iterable[Task]) -> list[QueuedTask]:
    """Return the open tasks as the planner sees them: admitted tasks count as running even without a worker."""
    by_id = {task.id: task for task in tasks}
    digests: dict[int, list[tuple[int, str]]] = {task_id: [] for task_id in by_id}
    chunks = TaskChunk.objects.filter(task__in=by_id).order_by("start_ms")
    for task_id, start, digest in chunks.values_list("task_id", "start_ms", "digest"):
        digests[task_id].append((start, digest))
    needs: dict[int, list[str]] = {task_id: [] for task_id in by_id}
    for task_id, needed in TaskDependency.objects.filter(task__in=by_id).values_list("task_id", "needs_id"):
        if needed in by_id:
            needs[task_id].append(by_id[needed].name)
    return [
        QueuedTask(
            name=task.name,
            source=str(task.source_id),
            end_ms=task.end_ms,
            chunk_digests=tuple(digests[task.id]),
            cost=0 if _is_parked(task) else task.cost,
            priority=task.priority,
            state=QueueState.WAITING if task.admitted_at_ms is None else QueueState.RUNNING,
            colour=task.colour,
            deps=tuple(needs[task.id]),
            is_over_limit=task.is_over_limit and not _is_parked(task),
            shared=tuple(task.shared),
            passed_over=task.passed,
            waiting_since_ms=task.created_at_ms,
            fp=task.fingerprint,
            grid=task.grid,
        )
        for task in by_id.values()
    ]


def _is_parked(task: Task) -> bool:
    """Return whether an operator parked the task's job: it keeps its chunks but uses no place in the queue."""
    return task.job is not None and task.job.state == JobState.PARKED


def queue_limits(policy: Policy, tasks: Iterable[Task], room: int) -> QueueLimits:
    """Return the queue limits of a table: waiting tasks are limited by ``room``, and parked tasks do not count."""
    limits, every = limits_of(policy), list(tasks)
    waiting = sum(task.admitted_at_ms is None for task in every)
    parked = sum(_is_parked(task) for task in every)
    waiting_max = max(1, min(limits.waiting_max, waiting + room))
    return replace(
        limits,
        waiting_max=waiting_max,
        low_water=min(limits.low_water, waiting_max - 1),
        running_max=limits.running_max + parked if limits.running_max else 0,
    )


def _urgent(source: DataSource, chunks: Iterable[Chunk]) -> frozenset[int]:
    """Return the starts of chunks that an operator requested to compact now."""
    overrides = ChunkOverride.objects.filter(source=source, kind=ChunkOverrideKind.NOW, ended_at_ms=None)
    wanted = list(overrides.values_list("start_ms", "end_ms"))
    if not wanted:
        return frozenset()
    return frozenset(
        chunk.start_ms for chunk in chunks if any(low < chunk.end_ms and chunk.start_ms < high for low, high in wanted)
    )


def budget_left(policy: Policy) -> int | None:
    """Return how many bytes of the daily budget are left, None without a budget."""
    return read_budget(policy.source).left if policy.bytes_per_day else None


def stored(row: Chunk) -> StoredChunk:
    """Return a chunk's row as the planner sees it."""
    return StoredChunk(
        source=str(row.source_id),
        chunk=analysed_chunk(row.analysis),
        state=ChunkState(row.state),
        fp=row.fingerprint,
        task=row.task.name if row.task is not None and row.task.state == TaskState.OPEN else "",
        outputs=tuple(row.outputs),
        outputs_fp=row.outputs_fingerprint,
        failures=row.failures,
        quarantined=row.quarantine_reason if row.is_quarantined else "",
        recheck_ms=row.recheck_ms,
    )


def analysed_chunk(data: Mapping[str, Any]) -> AnalysedChunk:
    """Return the analysis of a chunk from its JSON form."""
    lists = {name: tuple(data[name]) for name in _TUPLES}
    return AnalysedChunk(**{**data, **lists, "action": Action(data["action"])})


def analysis_json(chunk: AnalysedChunk) -> dict[str, Any]:
    """Return the analysis of a chunk in the JSON form that a row stores."""
    return asdict(chunk)
