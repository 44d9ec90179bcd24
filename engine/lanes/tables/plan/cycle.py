"""One cycle of the controller: analyse changes, create tasks, and admit tasks from the queue. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from engine.lanes.tables.plan import reasons, states
from engine.lanes.tables.plan.admission import Admission, admit
from engine.lanes.tables.plan.candidates import find_runs, skipped_chunk
from engine.lanes.tables.plan.colours import make_tasks, shared_keys
from engine.lanes.tables.plan.layout import Layout, build_layout
from engine.lanes.tables.plan.model import (
    PRIORITY_UNIT,
    Action,
    Chunk,
    ChunkKey,
    ChunkState,
    CycleDecisions,
    Extent,
    PlannedTask,
    QueuedTask,
    Refusal,
    StoredChunk,
    TaskState,
)
from engine.lanes.tables.plan.policy import TimelinePolicy
from engine.lanes.tables.plan.scoring import ScoringContext, Skip, find_skipped, score
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot
from engine.schedule.errors import SnapshotRefused

_IsWanted = Callable[[StoredChunk], bool]


def run_cycle(snapshot: CycleSnapshot) -> CycleDecisions:
    """Decide one cycle; the order of anything in the snapshot does not matter.

    A data source with contradicting segments is left unchanged, tasks included, and named in ``refusals``.
    """
    return _Cycle(snapshot).run()


def queued(task: PlannedTask, *, now_ms: int, policy: TimelinePolicy) -> QueuedTask:
    """Return the queue entry of a new task."""
    return QueuedTask(
        name=task.name,
        source=task.source,
        end_ms=task.end_ms,
        chunk_digests=tuple((chunk.start_ms, chunk.digest) for chunk in task.chunks),
        cost=task.cost,
        priority=task.priority,
        colour=task.colour,
        deps=task.deps,
        is_over_limit=task.is_over_limit,
        shared=tuple(sorted(shared_keys(task.chunks))),
        waiting_since_ms=now_ms,
        fp=policy.fingerprint(),
        output_fp=policy.output_fingerprint(),
        grid=policy.granularity.fingerprint(),
    )


@dataclass(slots=True)
class _SourceChange:
    """The changes of one data source. ``rows`` are the rows of all known chunks after the cycle, by start."""

    source: SourceSnapshot
    fp: str
    rows: dict[int, StoredChunk]
    before: dict[int, StoredChunk]
    removed: list[int] = field(default_factory=list)
    analysed: list[int] = field(default_factory=list)
    live: dict[str, QueuedTask] = field(default_factory=dict)
    extents: list[Extent] = field(init=False)

    def __post_init__(self) -> None:
        self.extents = sorted(self.source.extents or (), key=attrgetter("start_ms"))

    def holder(self) -> dict[int, QueuedTask]:
        """Return the waiting or running task of each chunk."""
        return {start_ms: task for task in self.live.values() for start_ms, _ in task.chunk_digests}


class _Cycle:
    def __init__(self, snapshot: CycleSnapshot) -> None:
        self.snapshot = snapshot
        self.tasks = {task.name: task for task in snapshot.tasks}
        self.changes: list[_SourceChange] = []
        self.refusals: list[Refusal] = []
        self.created: dict[str, PlannedTask] = {}
        self.dissolved: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []
        self.readmitted: list[ChunkKey] = []
        self.raised: list[str] = []

    def run(self) -> CycleDecisions:
        snapshot = self.snapshot
        for source in sorted(snapshot.sources, key=lambda one: one.source):
            try:
                change = self._analyse(source)
            except SnapshotRefused as error:
                self.refusals.append(Refusal(source=source.source, reason=str(error)))
                continue
            self.changes.append(change)
            self._plan(change, lambda row: row.state is ChunkState.UNSTABLE)
        admission = self._admit()
        if capacity := self._readmission_capacity(admission):
            self._readmit(capacity)
            if self.readmitted:
                admission = self._admit()
        return self._decisions(admission)

    def _analyse(self, source: SourceSnapshot) -> _SourceChange:
        """Compare the segments with the state store, and score the chunks that differ."""
        policy = source.policy
        layout = build_layout(source.segments, policy)
        rows = {row.chunk.start_ms: row for row in source.rows}
        change = _SourceChange(source, policy.fingerprint(), dict(rows), rows)
        latest_ms = layout.latest_end_ms if source.latest_end_ms is None else source.latest_end_ms
        guard_fp = policy.output_fingerprint()
        known = ScoringContext(
            now_ms=self.snapshot.now_ms,
            latest_end_ms=latest_ms,
            outputs={
                start_ms: frozenset(row.outputs)
                for start_ms, row in rows.items()
                if row.outputs and row.outputs_fp == guard_fp
            },
        )
        skipped = find_skipped(layout, policy, known)
        changed = _changed(change, layout, skipped)
        here = frozenset(layout.start.tolist())
        change.removed = sorted(
            start for start in rows if start not in here and start not in source.unread and _is_within(change, start)
        )
        places = _with_linked(change, layout, changed)
        scored = score(layout, np.array(places, np.int64), policy, known, skipped) if places else []
        for place, chunk in zip(places, scored, strict=True):
            start_ms = chunk.start_ms
            change.analysed.append(start_ms)
            change.rows[start_ms] = states.analysed(
                rows.get(start_ms),
                source.source,
                chunk,
                change.fp,
                recheck_ms=self._look_again(skipped.get(place), source),
            )
        self._postpone(change, layout, skipped, frozenset(places))
        for start_ms in change.removed:
            del change.rows[start_ms]
        self._reconcile(change)
        return change

    def _look_again(self, skip: Skip | None, source: SourceSnapshot) -> int | None:
        if skip is None or skip.until_ms is None:
            return None
        return max(skip.until_ms, self.snapshot.now_ms + source.policy.granularity.nominal_ms)

    def _postpone(
        self, change: _SourceChange, layout: Layout, skipped: dict[int, Skip], analysed: Collection[int]
    ) -> None:
        """Postpone the next analysis of chunks that are still skipped although it is due."""
        for place, skip in skipped.items():
            row = change.rows.get(int(layout.start[place]))
            if row is None or place in analysed or row.recheck_ms is None:
                continue
            if row.recheck_ms <= self.snapshot.now_ms:
                change.rows[row.chunk.start_ms] = replace(row, recheck_ms=self._look_again(skip, change.source))

    def _reconcile(self, change: _SourceChange) -> None:
        """Dissolve waiting tasks that no longer match the timeline; running ones are checked at their commit."""
        source = change.source
        grid = source.policy.granularity.fingerprint()
        for task in [task for task in self.tasks.values() if task.source == source.source]:
            if task.state is TaskState.RUNNING:
                if task.grid != grid:
                    self.cancelled.append((task.name, reasons.GRANULARITY_CHANGED))
                change.live[task.name] = task
                continue
            why = _outdated_reason(change, task)
            if why:
                self._dissolve(change, task, why)
                continue
            if task.priority < PRIORITY_UNIT and any(start_ms in source.urgent for start_ms, _ in task.chunk_digests):
                task = self.tasks[task.name] = replace(task, priority=PRIORITY_UNIT)
                self.raised.append(task.name)
            change.live[task.name] = task
        holder = change.holder()
        for start_ms, row in change.rows.items():
            task_name = holder[start_ms].name if start_ms in holder else ""
            if row.task != task_name:
                change.rows[start_ms] = replace(row, task=task_name)

    def _dissolve(self, change: _SourceChange, task: QueuedTask, why: str) -> None:
        self.dissolved.append((task.name, why))
        del self.tasks[task.name]
        for start_ms, _ in task.chunk_digests:
            row = change.rows.get(start_ms)
            if row is not None:
                change.rows[start_ms] = states.released(row)

    def _plan(self, change: _SourceChange, is_wanted: _IsWanted) -> list[PlannedTask]:
        """Create tasks for wanted chunks without a task; neutral chunks are included where they are tied to one."""
        source = change.source
        free: list[Chunk] = []
        for start_ms in sorted(change.rows):
            row = change.rows[start_ms]
            chunk = row.chunk
            if row.task or start_ms in source.unread:
                if chunk.shared and not source.policy.partial_visibility:
                    free.append(skipped_chunk(chunk, reasons.BUSY, row.task))
                continue
            if chunk.action is Action.COMPACT:
                if start_ms in source.urgent:
                    free.append(replace(chunk, priority=PRIORITY_UNIT))
                else:
                    free.append(chunk if is_wanted(row) else skipped_chunk(chunk, reasons.SET_ASIDE, row.reason))
            elif chunk.action is Action.NEUTRAL or chunk.action is Action.SKIPPED:
                free.append(chunk)
        found = find_runs(free, source.policy)
        for start_ms, (chunk, tie) in found.tied.items():
            row = change.rows[start_ms]
            if tie == reasons.BUSY:  # It is planned after that task.
                continue
            if tie == reasons.SET_ASIDE:  # Its own state is unchanged: it continues when the other chunk does.
                change.rows[start_ms] = replace(row, state=ChunkState.DEFERRED, quarantined=chunk.reason)
            else:
                change.rows[start_ms] = replace(row, chunk=chunk, state=ChunkState.SKIPPED)
        tasks = make_tasks(source.source, found.runs, now_ms=self.snapshot.now_ms, taken=change.live.values())
        for task in tasks:
            self.created[task.name] = task
            entry = queued(task, now_ms=self.snapshot.now_ms, policy=source.policy)
            self.tasks[task.name] = change.live[task.name] = entry
            for chunk in task.chunks:
                change.rows[chunk.start_ms] = states.given(replace(change.rows[chunk.start_ms], chunk=chunk), task.name)
        return tasks

    def _admit(self) -> Admission:
        snapshot = self.snapshot
        return admit(self.tasks.values(), snapshot.limits, now_ms=snapshot.now_ms, starts_tasks=snapshot.starts_tasks)

    def _readmission_capacity(self, admission: Admission) -> int:
        """Return how many deferred chunks may be readmitted: none while more tasks wait than the low-water mark."""
        waiting, limits = len(admission.waiting), self.snapshot.limits
        return limits.waiting_max - waiting if waiting <= limits.low_water else 0

    def _readmit(self, capacity: int) -> None:
        """Create tasks for the deferred chunks of the highest stored priorities."""
        best = sorted(
            (
                (-row.chunk.priority, -row.chunk.end_ms, change.source.source, start_ms)
                for change in self.changes
                for start_ms, row in change.rows.items()
                if row.state is ChunkState.DEFERRED
                and not row.quarantined
                and not row.task
                and row.fp == change.fp
                and start_ms not in change.source.unread
            )
        )[:capacity]
        for change in self.changes:
            wanted = {start_ms for _, _, source, start_ms in best if source == change.source.source}
            if wanted and not change.source.policy.partial_visibility:
                wanted = _with_tied(change, wanted)
            for task in self._plan(change, _starts_in(wanted)) if wanted else ():
                self.readmitted += [
                    (task.source, chunk.start_ms) for chunk in task.chunks if chunk.action is Action.COMPACT
                ]

    def _decisions(self, admission: Admission) -> CycleDecisions:
        """Return the decisions to store."""
        changes = {change.source.source: change for change in self.changes}
        shed_names = {task.name for task in admission.shed}
        for task in admission.shed:
            if (change := changes.get(task.source)) is not None:
                for start_ms, _ in task.chunk_digests:
                    if (row := change.rows.get(start_ms)) is not None:
                        change.rows[start_ms] = states.shed(row)
        created = [
            replace(task, deps=tuple(name for name in task.deps if name not in shed_names)) if task.deps else task
            for name, task in self.created.items()
            if name not in shed_names
        ]
        return CycleDecisions(
            rows=tuple(
                row
                for change in self.changes
                for start_ms, row in sorted(change.rows.items())
                if row is not change.before.get(start_ms) and row != change.before.get(start_ms)
            ),
            removed=tuple((change.source.source, start_ms) for change in self.changes for start_ms in change.removed),
            created=tuple(created),
            dissolved=tuple(self.dissolved),
            cancelled=tuple(self.cancelled),
            shed=tuple(task.name for task in admission.shed if task.name not in self.created),
            started=tuple(task.name for task in admission.started),
            passed_over=tuple((task.name, task.passed_over) for task in admission.passed_over),
            readmitted=tuple(self.readmitted),
            raised=tuple(self.raised),
            analysed=tuple(
                (change.source.source, start_ms) for change in self.changes for start_ms in sorted(change.analysed)
            ),
            refusals=tuple(self.refusals),
        )


def _is_within(change: _SourceChange, start_ms: int) -> bool:
    """Return whether a chunk lies within the extents of the snapshot."""
    if change.source.extents is None:
        return True
    place = bisect_right(change.extents, start_ms, key=attrgetter("start_ms"))
    return place > 0 and start_ms < change.extents[place - 1].end_ms


def _changed(change: _SourceChange, layout: Layout, skipped: dict[int, Skip]) -> list[int]:
    """Return the positions of chunks that differ from their rows, or whose skip cause changed."""
    found = []
    versions, counts = layout.seen.columns.versions, (layout.sums.segments + layout.sums.tombstones).tolist()
    columns = zip(layout.start.tolist(), layout.sums.rank.tolist(), counts, layout.digest.tolist(), strict=True)
    for place, (start_ms, rank, count, digest) in enumerate(columns):
        if start_ms in change.source.unread:
            continue
        row = change.rows.get(start_ms)
        if (
            row is None
            or not states.is_unchanged(row, version=versions[rank], count=count, digest=f"{digest:016x}", fp=change.fp)
            or _stored_skip_cause(row) != _skip_cause(skipped.get(place))
        ):
            found.append(place)
    return found


def _stored_skip_cause(row: StoredChunk) -> str:
    is_skipped = row.chunk.action is Action.SKIPPED and row.chunk.cause != reasons.TIED
    return row.chunk.cause if is_skipped else ""


def _skip_cause(skip: Skip | None) -> str:
    return skip.cause if skip else ""


def _with_linked(change: _SourceChange, layout: Layout, changed: list[int]) -> list[int]:
    """Add the chunks that share a segment with a changed one, now or before."""
    keys: set[int] = set()
    for chunk in _rows_of(change, [int(layout.start[place]) for place in changed] + change.removed):
        keys.update(chunk.shared, chunk.shared_tombstones)
    if layout.is_shared_entry.any():
        for place in changed:
            keys.update(*layout.shared(place))
    if not keys:
        return changed
    places = set(changed)
    for place, start_ms in enumerate(layout.start.tolist()):
        if place in places or start_ms in change.source.unread:
            continue
        if any(not keys.isdisjoint(shared) for shared in (*layout.shared(place), *_shared_before(change, start_ms))):
            places.add(place)
    return sorted(places)


def _shared_before(change: _SourceChange, start_ms: int) -> tuple[tuple[int, ...], ...]:
    row = change.rows.get(start_ms)
    return (row.chunk.shared, row.chunk.shared_tombstones) if row is not None else ()


def _rows_of(change: _SourceChange, starts: list[int]) -> Iterator[Chunk]:
    return (change.rows[start_ms].chunk for start_ms in starts if start_ms in change.rows)


def _outdated_reason(change: _SourceChange, task: QueuedTask) -> str:
    """Return why a waiting task no longer matches the timeline, "" if it does."""
    if task.fp != change.fp:
        return reasons.POLICY_CHANGED
    for start_ms, digest in task.chunk_digests:
        row = change.rows.get(start_ms)
        if row is None:
            if _is_within(change, start_ms):
                return reasons.chunk_changed(start_ms)
        elif row.chunk.digest != digest or row.chunk.action not in (Action.COMPACT, Action.NEUTRAL):
            return reasons.chunk_changed(start_ms)
    return ""


def _with_tied(change: _SourceChange, wanted: set[int]) -> set[int]:
    """Add the chunks that share a file with wanted ones, directly or transitively."""
    found = set(wanted)
    keys = {key for start_ms in wanted for key in change.rows[start_ms].chunk.shared}
    while keys:
        more = {
            start_ms
            for start_ms, row in change.rows.items()
            if start_ms not in found and not keys.isdisjoint(row.chunk.shared)
        }
        found |= more
        keys = {key for start_ms in more for key in change.rows[start_ms].chunk.shared}
    return found


def _starts_in(wanted: Collection[int]) -> _IsWanted:
    return lambda row: row.chunk.start_ms in wanted
