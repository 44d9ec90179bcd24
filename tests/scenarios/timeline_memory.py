"""A data source of timeline compaction in memory: the state that the web application keeps in tables.

The shipped code decides: the controller's cycle, the commit and the rules of the state store. The caller acts as
writers and workers. Every call is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from engine.lanes.tables.plan import states
from engine.lanes.tables.plan.commit import ChunkCommit, CommitAction, PlannedChunk, decide_commits, pieces_within
from engine.lanes.tables.plan.cycle import queued, run_cycle
from engine.lanes.tables.plan.model import (
    ChunkState,
    CycleDecisions,
    Extent,
    Piece,
    PlannedTask,
    QueuedTask,
    Segment,
    StoredChunk,
    TaskState,
)
from engine.lanes.tables.plan.policy import QueueLimits, TimelinePolicy
from engine.lanes.tables.plan.snapshots import CycleSnapshot, SourceSnapshot

SOURCE = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleToken(Exception):
    """The token of a report is not the task's present token."""

    task: str


@dataclass(slots=True)
class MemoryTask:
    """A task row: its queue entry, its plan and policy, and the token of its worker."""

    entry: QueuedTask
    planned: PlannedTask
    policy: TimelinePolicy
    token: int = 0


@dataclass(slots=True)
class MemoryTimeline:
    """One data source. ``touched`` holds the chunks with segments added or removed since the last cycle.

    ``changes`` counts chunks that a cycle found changed, ``analyses`` chunks it analysed, and ``needless`` analysed
    chunks that were deferred, unchanged and shared no segment with a changed chunk.
    """

    policy: TimelinePolicy
    limits: QueueLimits
    now_ms: int
    failures_max: int = 3
    carries_over: bool = True
    segments: dict[int, Segment] = field(default_factory=dict)
    rows: dict[int, StoredChunk] = field(default_factory=dict)
    tasks: dict[str, MemoryTask] = field(default_factory=dict)
    touched: set[int] = field(default_factory=set)
    urgent: set[int] = field(default_factory=set)
    by_chunk: dict[int, set[int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    next_key: int = 1
    next_token: int = 1
    changes: int = 0
    analyses: int = 0
    needless: int = 0

    # Writers.

    def add(self, **columns: object) -> Segment:
        """Add a segment with the next key."""
        one = Segment(key=self.next_key, **columns)  # type: ignore[arg-type]  # of the fields' types
        self.next_key += 1
        self._put(one)
        return one

    def remove(self, key: int) -> None:
        """Delete a segment."""
        one = self.segments.pop(key)
        for start_ms in self.chunks_of(one.start_ms, one.end_ms):
            self.by_chunk[start_ms].discard(key)
            self.touched.add(start_ms)

    def _put(self, one: Segment) -> None:
        self.segments[one.key] = one
        for start_ms in self.chunks_of(one.start_ms, one.end_ms):
            self.by_chunk.setdefault(start_ms, set()).add(one.key)
            self.touched.add(start_ms)

    def chunks_of(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the starts of all chunks that overlap an interval."""
        found: list[int] = []
        at = start_ms
        while at < end_ms:
            first = self._start_of(at)
            found.append(first)
            at = self.ends[first]
        return found

    def _start_of(self, time_ms: int) -> int:
        length = self.policy.granularity.nominal_ms
        guess = time_ms - time_ms % length
        if guess in self.ends and guess <= time_ms < self.ends[guess]:
            return guess
        start_ms, end_ms = self.policy.granularity.chunk_of(time_ms)
        self.ends[start_ms] = end_ms
        return start_ms

    # The controller.

    def snapshot(self, *, is_whole: bool = False) -> CycleSnapshot:
        """Return the input of a cycle: touched chunks and related ones, or all if ``is_whole``."""
        starts = self._extent_starts(set(self.by_chunk) | set(self.rows) if is_whole else self.touched | self._due())
        known = self._with_their_tasks(starts) | self._best_deferred() | self.urgent
        keys = {key for start_ms in starts for key in self.by_chunk.get(start_ms, ())}
        return CycleSnapshot(
            now_ms=self.now_ms,
            sources=(
                SourceSnapshot(
                    source=SOURCE,
                    policy=self.policy,
                    segments=tuple(self.segments[key] for key in keys),
                    extents=_extents(starts, self.ends),
                    rows=tuple(self.rows[start_ms] for start_ms in self._with_shared(known) if start_ms in self.rows),
                    latest_end_ms=max((one.end_ms for one in self.segments.values()), default=0),
                    urgent=frozenset(self.urgent),
                ),
            ),
            tasks=tuple(task.entry for task in self.tasks.values()),
            limits=self.limits,
        )

    def turn(self, *, is_whole: bool = False) -> CycleDecisions:
        """Run one cycle of the controller and store its decisions."""
        decided = run_cycle(self.snapshot(is_whole=is_whole))
        self._count(decided)
        if decided.refusals:
            return decided
        for _, start_ms in decided.removed:
            del self.rows[start_ms]
        for row in decided.rows:
            self.rows[row.chunk.start_ms] = row
        for name in decided.shed:  # its rows may not have been in the snapshot
            self._let_go(name, states.shed)
        for name, _ in decided.dissolved:
            self._let_go(name, states.released)
        for planned in decided.created:
            entry = queued(planned, now_ms=self.now_ms, policy=self.policy)
            self.tasks[planned.name] = MemoryTask(entry, planned, self.policy)
        for name, count in decided.passed_over:
            self.tasks[name].entry = replace(self.tasks[name].entry, passed_over=count)
        for name in decided.started:
            self.start(name)
        for name, why in decided.cancelled:
            self.fail(name, self.tasks[name].token, why, is_counted=False)
        self.touched.clear()
        self.urgent.clear()
        return decided

    def start(self, name: str) -> int:
        """Assign a task to a worker; return its token. The previous token becomes invalid."""
        task = self.tasks[name]
        task.token, self.next_token = self.next_token, self.next_token + 1
        task.entry = replace(task.entry, state=TaskState.RUNNING)
        return task.token

    def _let_go(self, name: str, becomes: Callable[[StoredChunk], StoredChunk]) -> None:
        for start_ms, _ in self.tasks.pop(name).entry.chunk_digests:
            row = self.rows.get(start_ms)
            if row is not None and row.task == name:
                self.rows[start_ms] = becomes(row)

    def _count(self, decided: CycleDecisions) -> None:
        changed = {start_ms for start_ms in self.touched if start_ms in self.rows or self.by_chunk.get(start_ms)}
        self.changes += len(changed)
        self.analyses += len(decided.analysed)
        shared = {key for start_ms in changed for key in self.by_chunk.get(start_ms, ())}
        for _, start_ms in decided.analysed:
            row = self.rows.get(start_ms)
            if row is not None and row.state is ChunkState.DEFERRED and start_ms not in changed:
                is_apart = shared.isdisjoint(self.by_chunk.get(start_ms, ()))
                self.needless += is_apart and row.fp == self.policy.fingerprint()

    def _due(self) -> set[int]:
        return {
            start_ms
            for start_ms, row in self.rows.items()
            if row.recheck_ms is not None and row.recheck_ms <= self.now_ms
        }

    def _extent_starts(self, starts: Iterable[int]) -> set[int]:
        found = set(starts)
        waiting = list(found)
        while waiting:
            for key in self.by_chunk.get(waiting.pop(), ()):
                one = self.segments[key]
                more = set(self.chunks_of(one.start_ms, one.end_ms)) - found
                found |= more
                waiting += more
        return found

    def _with_their_tasks(self, starts: set[int]) -> set[int]:
        names = {self.rows[start_ms].task for start_ms in starts if start_ms in self.rows} - {""}
        return starts | {
            start_ms for name in names if name in self.tasks for start_ms, _ in self.tasks[name].entry.chunk_digests
        }

    def _best_deferred(self) -> set[int]:
        put_off = [row for row in self.rows.values() if row.state is ChunkState.DEFERRED and not row.quarantined]
        put_off.sort(key=lambda row: (-row.chunk.priority, -row.chunk.end_ms))
        free = [row for row in self.rows.values() if row.state is ChunkState.UNSTABLE and not row.task]
        return {row.chunk.start_ms for row in (*put_off[: self.limits.waiting_max], *free)}

    def _with_shared(self, starts: Iterable[int]) -> set[int]:
        found = set(starts)
        waiting = list(found)
        while waiting:
            row = self.rows.get(waiting.pop())
            for key in row.chunk.shared if row else ():
                if key in self.segments:
                    one = self.segments[key]
                    more = set(self.chunks_of(one.start_ms, one.end_ms)) - found
                    found |= more
                    waiting += more
        return found

    # Workers.

    def commit(self, name: str, token: int, *, only: Collection[int] | None = None) -> list[ChunkCommit]:
        """Publish the outputs of a task chunk by chunk; ``only`` limits an interrupted task to some chunks.

        Raises StaleToken if ``token`` is not the task's present token.
        """
        task = self._held(name, token)
        planned = [PlannedChunk.of(chunk) for chunk in task.planned.chunks if only is None or chunk.start_ms in only]
        decided = decide_commits(
            planned,
            {chunk.start_ms: self._within(chunk.start_ms) for chunk in planned},
            now_ms=self.now_ms,
            partial_visibility=self.policy.partial_visibility,
            carries_over=self.carries_over,
        )
        for chunk, commit in zip(planned, decided, strict=True):
            row = self.rows.get(chunk.start_ms)
            if commit.action is CommitAction.ABORT:
                if row is not None:
                    self.rows[chunk.start_ms] = states.released(row)
                continue
            outputs = self._publish(chunk, commit, task.policy)
            if row is not None:
                self.rows[chunk.start_ms] = states.succeeded(row, outputs, task.entry.output_fp)
        self._retire(chunk.start_ms for chunk in planned)
        if only is None:
            self._end(name)
        return decided

    def fail(self, name: str, token: int, why: str, *, is_counted: bool = True) -> None:
        """End a task without outputs; too many consecutive failures exclude its chunks."""
        task = self._held(name, token)
        for start_ms, _ in task.entry.chunk_digests:
            row = self.rows.get(start_ms)
            if row is not None and row.task == name:
                is_over = is_counted and row.state is not ChunkState.STABLE
                self.rows[start_ms] = (
                    states.failed(row, why, failures_max=self.failures_max) if is_over else states.released(row)
                )
        self._end(name)

    def _held(self, name: str, token: int) -> MemoryTask:
        task = self.tasks.get(name)
        if task is None or task.token != token or task.entry.state is not TaskState.RUNNING:
            raise StaleToken(task=name)
        return task

    def _end(self, name: str) -> None:
        self._let_go(name, states.released)

    def _within(self, start_ms: int) -> list[Segment]:
        return [self.segments[key] for key in self.by_chunk.get(start_ms, ())]

    def _publish(self, chunk: PlannedChunk, commit: ChunkCommit, policy: TimelinePolicy) -> tuple[int, ...]:
        """Write a task's outputs into a chunk; the bytes of the chunk's sources determine their number."""
        pieces, _ = pieces_within(self._within(chunk.start_ms), chunk.start_ms, chunk.end_ms)
        ours = frozenset(chunk.keys)
        total = sum(bytes_of(piece) for piece in pieces if piece.segment.key in ours)
        most = policy.segment_bytes_max
        count = max(1, -(-total // most))
        for number, key in enumerate(commit.carried):
            one = self.segments[key]
            self.remove(key)
            self._put(
                replace(
                    one,
                    start_ms=chunk.start_ms,
                    end_ms=chunk.end_ms,
                    version=commit.version,
                    partition=count + number,
                    core_partitions=0,
                )
            )
        made = [
            self.add(
                start_ms=chunk.start_ms,
                end_ms=chunk.end_ms,
                version=commit.version,
                partition=number,
                core_partitions=count,
                size_bytes=total * (number + 1) // count - total * number // count,
            )
            for number in range(count)
        ]
        return tuple(one.key for one in made)

    def _retire(self, starts: Iterable[int]) -> None:
        """Remove fully hidden segments together; removing one alone could leave the others incomplete."""
        near = {key for start_ms in starts for key in self.by_chunk.get(start_ms, ())}
        hidden = [key for key in sorted(near) if self._is_hidden(self.segments[key])]
        for key in hidden:
            self.remove(key)

    def _is_hidden(self, one: Segment) -> bool:
        near = {other for start_ms in self.chunks_of(one.start_ms, one.end_ms) for other in self.by_chunk[start_ms]}
        pieces, waiting = pieces_within([self.segments[other] for other in near], one.start_ms, one.end_ms)
        return one.key not in waiting and all(piece.segment.key != one.key for piece in pieces)


def bytes_of(piece: Piece) -> int:
    """Return a piece's share of its segment's bytes by time; the pieces of a segment add up to its bytes."""
    one = piece.segment
    size, length = one.size_bytes or 0, one.end_ms - one.start_ms
    return size * (piece.end_ms - one.start_ms) // length - size * (piece.start_ms - one.start_ms) // length


def _extents(starts: Iterable[int], ends: dict[int, int]) -> tuple[Extent, ...]:
    found: list[Extent] = []
    for start_ms in sorted(starts):
        if found and found[-1].end_ms == start_ms:
            found[-1] = Extent(start_ms=found[-1].start_ms, end_ms=ends[start_ms])
        else:
            found.append(Extent(start_ms=start_ms, end_ms=ends[start_ms]))
    return tuple(found)
