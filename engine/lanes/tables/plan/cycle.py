"""One turn of the controller: what changed is looked at, tasks are made of it, the queue takes what it can. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter

import numpy as np

from engine.lanes.tables.plan import states, words
from engine.lanes.tables.plan.admission import Admission, admit
from engine.lanes.tables.plan.candidates import find_runs, left_alone
from engine.lanes.tables.plan.colours import make_tasks, shared_keys
from engine.lanes.tables.plan.layout import Layout, lay_out
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
from engine.lanes.tables.plan.scoring import Known, Skip, score, skips
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot
from engine.schedule.errors import SnapshotRefused

_IsWanted = Callable[[StoredChunk], bool]


def run_cycle(snapshot: CycleSnapshot) -> CycleDecisions:
    """Decide one turn; the order of anything in the snapshot makes no difference.

    A data source whose segments contradict each other is left as it is, tasks and all, and named in ``refusals``.
    """
    return _Cycle(snapshot).run()


def queued(task: PlannedTask, *, now_ms: int, policy: TimelinePolicy) -> QueuedTask:
    """Return a new task as the queue knows it."""
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
class _Turn:
    """What the turn does to one data source. ``rows`` are all that are known, by their starts, as they will be."""

    told: SourceSnapshot
    fp: str
    rows: dict[int, StoredChunk]
    before: dict[int, StoredChunk]
    gone: list[int] = field(default_factory=list)
    analysed: list[int] = field(default_factory=list)
    live: dict[str, QueuedTask] = field(default_factory=dict)
    extents: list[Extent] = field(init=False)

    def __post_init__(self) -> None:
        self.extents = sorted(self.told.extents or (), key=attrgetter("start_ms"))

    def holder(self) -> dict[int, QueuedTask]:
        """Return which chunks a task that waits or runs has."""
        return {start_ms: task for task in self.live.values() for start_ms, _ in task.chunk_digests}


class _Cycle:
    def __init__(self, snapshot: CycleSnapshot) -> None:
        self.snapshot = snapshot
        self.tasks = {task.name: task for task in snapshot.tasks}
        self.turns: list[_Turn] = []
        self.refusals: list[Refusal] = []
        self.created: dict[str, PlannedTask] = {}
        self.dissolved: list[tuple[str, str]] = []
        self.cancelled: list[tuple[str, str]] = []
        self.readmitted: list[ChunkKey] = []
        self.raised: list[str] = []

    def run(self) -> CycleDecisions:
        snapshot = self.snapshot
        for told in sorted(snapshot.sources, key=lambda one: one.source):
            try:
                turn = self._look(told)
            except SnapshotRefused as error:
                self.refusals.append(Refusal(source=told.source, reason=str(error)))
                continue
            self.turns.append(turn)
            self._plan(turn, lambda row: row.state is ChunkState.UNSTABLE)
        admission = self._admit()
        if room := self._room(admission):
            self._take_back(room)
            if self.readmitted:
                admission = self._admit()
        return self._decided(admission)

    # What changed.

    def _look(self, told: SourceSnapshot) -> _Turn:
        """Compare what is there with the state store, and ask the rules about what differs."""
        policy = told.policy
        layout = lay_out(told.segments, policy)
        rows = {row.chunk.start_ms: row for row in told.rows}
        turn = _Turn(told, policy.fingerprint(), dict(rows), rows)
        latest_ms = layout.latest_end_ms if told.latest_end_ms is None else told.latest_end_ms
        guard_fp = policy.output_fingerprint()
        known = Known(
            now_ms=self.snapshot.now_ms,
            latest_end_ms=latest_ms,
            outputs={
                start_ms: frozenset(row.outputs)
                for start_ms, row in rows.items()
                if row.outputs and row.outputs_fp == guard_fp
            },
        )
        skipped = skips(layout, policy, known)
        changed = _changed(turn, layout, skipped)
        here = frozenset(layout.start.tolist())
        turn.gone = sorted(
            start for start in rows if start not in here and start not in told.unread and _is_within(turn, start)
        )
        places = _with_linked(turn, layout, changed)
        scored = score(layout, np.array(places, np.int64), policy, known, skipped) if places else []
        for place, chunk in zip(places, scored, strict=True):
            start_ms = chunk.start_ms
            turn.analysed.append(start_ms)
            turn.rows[start_ms] = states.analysed(
                rows.get(start_ms),
                told.source,
                chunk,
                turn.fp,
                look_again_ms=self._look_again(skipped.get(place), told),
            )
        self._wait_longer(turn, layout, skipped, frozenset(places))
        for start_ms in turn.gone:
            del turn.rows[start_ms]
        self._reconcile(turn)
        return turn

    def _look_again(self, skip: Skip | None, told: SourceSnapshot) -> int | None:
        if skip is None or skip.until_ms is None:
            return None
        return max(skip.until_ms, self.snapshot.now_ms + told.policy.granularity.nominal_ms)

    def _wait_longer(self, turn: _Turn, layout: Layout, skipped: dict[int, Skip], analysed: Collection[int]) -> None:
        """Look again later at what is still left alone though its time has come."""
        for place, skip in skipped.items():
            row = turn.rows.get(int(layout.start[place]))
            if row is None or place in analysed or row.look_again_ms is None:
                continue
            if row.look_again_ms <= self.snapshot.now_ms:
                turn.rows[row.chunk.start_ms] = replace(row, look_again_ms=self._look_again(skip, turn.told))

    # The queue.

    def _reconcile(self, turn: _Turn) -> None:
        """Dissolve waiting tasks that do not fit what is there any more; those that run are left to the commit."""
        told = turn.told
        grid = told.policy.granularity.fingerprint()
        for task in [task for task in self.tasks.values() if task.source == told.source]:
            if task.state is TaskState.RUNNING:
                if task.grid != grid:
                    self.cancelled.append((task.name, words.GRANULARITY_CHANGED))
                turn.live[task.name] = task
                continue
            why = _misfit(turn, task)
            if why:
                self._dissolve(turn, task, why)
                continue
            if task.priority < PRIORITY_UNIT and any(start_ms in told.urgent for start_ms, _ in task.chunk_digests):
                task = self.tasks[task.name] = replace(task, priority=PRIORITY_UNIT)
                self.raised.append(task.name)
            turn.live[task.name] = task
        holder = turn.holder()
        for start_ms, row in turn.rows.items():
            task_name = holder[start_ms].name if start_ms in holder else ""
            if row.task != task_name:
                turn.rows[start_ms] = replace(row, task=task_name)

    def _dissolve(self, turn: _Turn, task: QueuedTask, why: str) -> None:
        self.dissolved.append((task.name, why))
        del self.tasks[task.name]
        for start_ms, _ in task.chunk_digests:
            row = turn.rows.get(start_ms)
            if row is not None:
                turn.rows[start_ms] = states.released(row)

    def _plan(self, turn: _Turn, is_wanted: _IsWanted) -> list[PlannedTask]:
        """Make tasks of what is wanted and no task has; chunks of no opinion come along where they are tied to it."""
        told = turn.told
        free: list[Chunk] = []
        for start_ms in sorted(turn.rows):
            row = turn.rows[start_ms]
            chunk = row.chunk
            if row.task or start_ms in told.unread:
                if chunk.shared and not told.policy.partial_visibility:
                    free.append(left_alone(chunk, words.BUSY, row.task))
                continue
            if chunk.action is Action.COMPACT:
                if start_ms in told.urgent:
                    free.append(replace(chunk, priority=PRIORITY_UNIT))
                else:
                    free.append(chunk if is_wanted(row) else left_alone(chunk, words.SET_ASIDE, row.reason))
            elif chunk.action is Action.NO_OPINION or chunk.action is Action.SKIPPED:
                free.append(chunk)
        found = find_runs(free, told.policy)
        for start_ms, (chunk, tie) in found.tied.items():
            row = turn.rows[start_ms]
            if tie == words.BUSY:  # it is planned when that task is over
                continue
            if tie == words.SET_ASIDE:  # its own sizes did not change: it goes on when the other does
                turn.rows[start_ms] = replace(row, state=ChunkState.DEFERRED, quarantined=chunk.reason)
            else:
                turn.rows[start_ms] = replace(row, chunk=chunk, state=ChunkState.SKIPPED)
        tasks = make_tasks(told.source, found.runs, now_ms=self.snapshot.now_ms, taken=turn.live.values())
        for task in tasks:
            self.created[task.name] = task
            entry = queued(task, now_ms=self.snapshot.now_ms, policy=told.policy)
            self.tasks[task.name] = turn.live[task.name] = entry
            for chunk in task.chunks:
                turn.rows[chunk.start_ms] = states.given(replace(turn.rows[chunk.start_ms], chunk=chunk), task.name)
        return tasks

    def _admit(self) -> Admission:
        snapshot = self.snapshot
        return admit(self.tasks.values(), snapshot.limits, now_ms=snapshot.now_ms, starts_tasks=snapshot.starts_tasks)

    def _room(self, admission: Admission) -> int:
        """Return how many chunks may be taken back: none while more tasks wait than the low-water mark."""
        waiting, limits = len(admission.waiting), self.snapshot.limits
        return limits.waiting_max - waiting if waiting <= limits.low_water else 0

    def _take_back(self, room: int) -> None:
        """Make tasks of the best of what was put off, by the priorities it was put off with."""
        best = sorted(
            (
                (-row.chunk.priority, -row.chunk.end_ms, turn.told.source, start_ms)
                for turn in self.turns
                for start_ms, row in turn.rows.items()
                if row.state is ChunkState.DEFERRED
                and not row.quarantined
                and not row.task
                and row.fp == turn.fp
                and start_ms not in turn.told.unread
            )
        )[:room]
        for turn in self.turns:
            wanted = {start_ms for _, _, source, start_ms in best if source == turn.told.source}
            if wanted and not turn.told.policy.partial_visibility:
                wanted = _with_tied(turn, wanted)
            for task in self._plan(turn, _starts_in(wanted)) if wanted else ():
                self.readmitted += [
                    (task.source, chunk.start_ms) for chunk in task.chunks if chunk.action is Action.COMPACT
                ]

    def _decided(self, admission: Admission) -> CycleDecisions:
        """Put together what is to be written down."""
        turns = {turn.told.source: turn for turn in self.turns}
        gone = {task.name for task in admission.shed}
        for task in admission.shed:
            if (turn := turns.get(task.source)) is not None:
                for start_ms, _ in task.chunk_digests:
                    if (row := turn.rows.get(start_ms)) is not None:
                        turn.rows[start_ms] = states.shed(row)
        created = [
            replace(task, deps=tuple(name for name in task.deps if name not in gone)) if task.deps else task
            for name, task in self.created.items()
            if name not in gone
        ]
        return CycleDecisions(
            rows=tuple(
                row
                for turn in self.turns
                for start_ms, row in sorted(turn.rows.items())
                if row is not turn.before.get(start_ms) and row != turn.before.get(start_ms)
            ),
            gone=tuple((turn.told.source, start_ms) for turn in self.turns for start_ms in turn.gone),
            created=tuple(created),
            dissolved=tuple(self.dissolved),
            cancelled=tuple(self.cancelled),
            shed=tuple(task.name for task in admission.shed if task.name not in self.created),
            started=tuple(task.name for task in admission.started),
            passed_over=tuple((task.name, task.passed_over) for task in admission.passed_over),
            readmitted=tuple(self.readmitted),
            raised=tuple(self.raised),
            analysed=tuple((turn.told.source, start_ms) for turn in self.turns for start_ms in sorted(turn.analysed)),
            refusals=tuple(self.refusals),
        )


def _is_within(turn: _Turn, start_ms: int) -> bool:
    """Say whether a chunk lies in what the turn looks at."""
    if turn.told.extents is None:
        return True
    place = bisect_right(turn.extents, start_ms, key=attrgetter("start_ms"))
    return place > 0 and start_ms < turn.extents[place - 1].end_ms


def _changed(turn: _Turn, layout: Layout, skipped: dict[int, Skip]) -> list[int]:
    """Return the places of chunks that are not as their rows say, or were left alone and are not any more."""
    found = []
    versions, counts = layout.seen.columns.versions, (layout.sums.segments + layout.sums.tombstones).tolist()
    columns = zip(layout.start.tolist(), layout.sums.rank.tolist(), counts, layout.digest.tolist(), strict=True)
    for place, (start_ms, rank, count, digest) in enumerate(columns):
        if start_ms in turn.told.unread:
            continue
        row = turn.rows.get(start_ms)
        if (
            row is None
            or not states.is_unchanged(row, version=versions[rank], count=count, digest=f"{digest:016x}", fp=turn.fp)
            or _left_alone(row) != _why_left(skipped.get(place))
        ):
            found.append(place)
    return found


def _left_alone(row: StoredChunk) -> str:
    is_skipped = row.chunk.action is Action.SKIPPED and row.chunk.cause != words.TIED
    return row.chunk.cause if is_skipped else ""


def _why_left(skip: Skip | None) -> str:
    return skip.cause if skip else ""


def _with_linked(turn: _Turn, layout: Layout, changed: list[int]) -> list[int]:
    """Add the chunks that share a segment with one that changed, as it is now or as it was."""
    keys: set[int] = set()
    for chunk in _rows_of(turn, [int(layout.start[place]) for place in changed] + turn.gone):
        keys.update(chunk.shared, chunk.shared_tombstones)
    if layout.is_shared_entry.any():
        for place in changed:
            keys.update(*layout.shared(place))
    if not keys:
        return changed
    places = set(changed)
    for place, start_ms in enumerate(layout.start.tolist()):
        if place in places or start_ms in turn.told.unread:
            continue
        if any(not keys.isdisjoint(shared) for shared in (*layout.shared(place), *_shared_before(turn, start_ms))):
            places.add(place)
    return sorted(places)


def _shared_before(turn: _Turn, start_ms: int) -> tuple[tuple[int, ...], ...]:
    row = turn.rows.get(start_ms)
    return (row.chunk.shared, row.chunk.shared_tombstones) if row is not None else ()


def _rows_of(turn: _Turn, starts: list[int]) -> Iterator[Chunk]:
    return (turn.rows[start_ms].chunk for start_ms in starts if start_ms in turn.rows)


def _misfit(turn: _Turn, task: QueuedTask) -> str:
    """Return why a waiting task does not fit what is there any more, "" if it does."""
    if task.fp != turn.fp:
        return words.POLICY_CHANGED
    for start_ms, digest in task.chunk_digests:
        row = turn.rows.get(start_ms)
        if row is None:
            if _is_within(turn, start_ms):
                return words.chunk_changed(start_ms)
        elif row.chunk.digest != digest or row.chunk.action not in (Action.COMPACT, Action.NO_OPINION):
            return words.chunk_changed(start_ms)
    return ""


def _with_tied(turn: _Turn, wanted: set[int]) -> set[int]:
    """Add the chunks that have a file in common with what is wanted, directly or by others."""
    found = set(wanted)
    keys = {key for start_ms in wanted for key in turn.rows[start_ms].chunk.shared}
    while keys:
        more = {
            start_ms
            for start_ms, row in turn.rows.items()
            if start_ms not in found and not keys.isdisjoint(row.chunk.shared)
        }
        found |= more
        keys = {key for start_ms in more for key in turn.rows[start_ms].chunk.shared}
    return found


def _starts_in(wanted: Collection[int]) -> _IsWanted:
    return lambda row: row.chunk.start_ms in wanted
