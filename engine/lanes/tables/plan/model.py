"""Data model of timeline compaction: segments, chunks, tasks, the state store. Times are ms, ends exclusive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.core.fast_dataclasses import fast_init
from engine.core.formatting import format_size, format_time
from engine.lanes.tables.plan import reasons

ChunkKey = tuple[str, int]
"""Data source, start of the chunk."""

PRIORITY_UNIT = 1_000_000
"""Priorities are integers in millionths, from 1 to 1,000,000."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """An immutable object of a timeline, as recorded in the index.

    ``key`` is the caller's row id; (interval, version, partition) is unique within a data source too. Versions are
    compared as text. The ``core_partitions`` partitions of one (interval, version) were published together and become
    visible only when all are known; 0 if this does not apply. ``size_bytes`` and ``rows`` are None if unknown. A
    tombstone has no rows and hides older data. ``folder`` is the part of the path that holds a file's constant columns;
    files of different folders are never merged.

    The other fields belong to data written under segment locks. Among equal versions, segments with a higher
    ``minor_version`` hide those whose partitions ``[root_start, root_end)`` they contain, once all ``group_size`` of
    them are known; ``root_end`` of None stands for the segment's own partition.
    """

    key: int
    start_ms: int
    end_ms: int
    version: str
    partition: int = 0
    core_partitions: int = 0
    size_bytes: int | None = 0
    rows: int | None = None
    is_tombstone: bool = False
    folder: str = ""
    minor_version: int = 0
    root_start: int = 0
    root_end: int | None = None
    group_size: int = 1


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A period within one chunk in which a segment is visible."""

    segment: Segment
    start_ms: int
    end_ms: int


class Action(StrEnum):
    """The decision of the rules about a chunk."""

    SKIPPED = "skipped"
    EMPTY = "empty"
    STABLE = "stable"
    NEUTRAL = "no-opinion"  # the value stored in rows of the state store
    COMPACT = "compact"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A time chunk with the inputs and the decision of the rules.

    ``version`` (the highest), ``count`` (segments, tombstones included) and ``digest`` change whenever the visible
    content changes. ``keys`` are the visible segments, sorted; ``shared`` those with data that are also visible in
    another chunk, ``shared_tombstones`` the tombstones that are. ``reaches_start`` and ``reaches_end``: the timeline
    has data at the chunk's first and last instant.

    ``segments`` counts those with data; they need at least ``fit`` objects, their visible bytes ``out``. ``bytes`` are
    estimated by time for segments that are partly visible. The last five fields are the expected gains, from 0 to 1,
    and are 0 unless the action is COMPACT; ``priority`` is in millionths. ``cause`` is a key of
    ``reasons.CHUNK_REASONS``.
    """

    start_ms: int
    end_ms: int
    version: str = ""
    count: int = 0
    digest: str = ""
    keys: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    shared_tombstones: tuple[int, ...] = ()
    has_overlap_prior: bool = False
    has_overlap_later: bool = False
    reaches_start: bool = False
    reaches_end: bool = False
    segments: int = 0
    fit: int = 1
    out: int = 1
    bytes: int = 0
    largest_bytes: int = 0
    cost: int = 0
    is_estimate: bool = False
    action: Action = Action.EMPTY
    cause: str = reasons.NOTHING
    detail: str = ""
    fragmentation: float = 0.0
    oversize: float = 0.0
    alignment: float = 0.0
    recency: float = 0.0
    priority: int = 0

    @property
    def reason(self) -> str:
        """The reason of the decision, as text; estimates are marked as such."""
        text = reasons.CHUNK_REASONS[self.cause].format(
            detail=self.detail,
            segments=self.segments,
            bytes=format_size(self.bytes),
            largest=format_size(self.largest_bytes),
            out=self.out,
        )
        return text + (" (some sizes are unknown)" if self.is_estimate else "")


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Chunks that one job rewrites, in time order, each committed on its own.

    Tasks that share a segment have different colours; a task may start when all tasks named in ``deps`` have ended, one
    of colour 0 at once. ``is_over_limit``: it exceeds the cost limit and cannot be split, so it runs alone.
    """

    name: str
    source: str
    chunks: tuple[Chunk, ...]
    cost: int
    priority: int
    colour: int = 0
    deps: tuple[str, ...] = ()
    is_over_limit: bool = False

    @property
    def start_ms(self) -> int:
        return self.chunks[0].start_ms

    @property
    def end_ms(self) -> int:
        return self.chunks[-1].end_ms

    @property
    def segment_keys(self) -> tuple[int, ...]:
        """The segments visible in it, tombstones included, sorted."""
        return tuple(sorted({key for chunk in self.chunks for key in chunk.keys}))

    @property
    def reason(self) -> str:
        """The reason for the task and its dependencies, as text."""
        best = max(self.chunks, key=lambda chunk: chunk.priority)
        text = f"{len(self.chunks)} chunks from {format_time(self.start_ms)}" if len(self.chunks) > 1 else "one chunk"
        text += f", the most urgent of them from {format_time(best.start_ms)}: {best.reason}"
        if self.is_over_limit:
            text += "; it exceeds the cost limit and cannot be split, so it runs alone"
        return text + (f"; after {', '.join(self.deps)}, which share segments with it" if self.deps else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePlan:
    """The plan of a whole timeline: its chunks in time order, and the tasks.

    ``unbounded`` are the segments that overlap too many chunks to be cut.
    """

    source: str
    chunks: tuple[Chunk, ...] = ()
    tasks: tuple[PlannedTask, ...] = ()
    unbounded: tuple[int, ...] = ()


class ChunkState(StrEnum):
    """The state of a chunk in the state store; ``skipped`` chunks are left alone for the row's reason."""

    EMPTY = "empty"
    STABLE = "stable"
    UNSTABLE = "unstable"
    DEFERRED = "deferred"
    SKIPPED = "skipped"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A row of the state store: the chunk as last analysed, and its state.

    ``fp`` is the fingerprint of the policy of the analysis. ``task`` names its waiting or running task, "" for none.
    ``outputs`` are the segments that the last successful task left in it, under ``outputs_fp``. ``failures`` counts
    consecutive failed tasks; ``quarantined`` is why it is not retried automatically, "" if it is. ``recheck_ms`` is
    when time alone changes the decision, None for never.
    """

    source: str
    chunk: Chunk
    state: ChunkState
    fp: str
    task: str = ""
    outputs: tuple[int, ...] = ()
    outputs_fp: str = ""
    failures: int = 0
    quarantined: str = ""
    recheck_ms: int | None = None

    @property
    def key(self) -> ChunkKey:
        return (self.source, self.chunk.start_ms)

    @property
    def reason(self) -> str:
        """The reason for its state, as text."""
        text = self.chunk.reason
        if self.quarantined:
            return f"{text}; quarantined after {self.failures} failures: {self.quarantined}"
        if self.state == "deferred":
            return f"{text}; deferred, since more urgent work fills the queue"
        return f"{text}{reasons.IN_TASK}{self.task}" if self.task else text


class TaskState(StrEnum):
    """The states of a task that the controller distinguishes."""

    WAITING = "waiting"
    RUNNING = "running"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTask:
    """A waiting or running task.

    ``chunk_digests`` holds start and digest of each chunk as planned; ``shared`` the segments that it may share with
    other tasks; ``passed_over`` how often a later task was started because this one did not fit. ``fp`` is the
    fingerprint of the policy it was planned under, ``output_fp`` that of its outputs, ``grid`` that of its granularity.
    """

    name: str
    source: str
    end_ms: int
    chunk_digests: tuple[tuple[int, str], ...]
    cost: int
    priority: int
    state: TaskState = TaskState.WAITING
    colour: int = 0
    deps: tuple[str, ...] = ()
    is_over_limit: bool = False
    shared: tuple[int, ...] = ()
    passed_over: int = 0
    waiting_since_ms: int = 0
    fp: str = ""
    output_fp: str = ""
    grid: str = ""

    @property
    def start_ms(self) -> int:
        return self.chunk_digests[0][0]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A data source that was neither planned nor changed, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A period of a timeline that was read completely: no segment crosses its borders."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDecisions:
    """The decisions of a cycle, to store in one transaction before any task starts.

    ``rows`` are the changed rows of the state store, ``removed`` the rows to delete. ``created`` are new tasks;
    ``dissolved`` names waiting tasks that no longer match the timeline, with reasons; running tasks in ``cancelled``
    must be stopped. ``shed`` tasks were deferred; a new task that is shed at once is in neither ``created`` nor
    ``shed``, and its chunks are deferred. Rows that the snapshot lacked are not among ``rows``: the caller updates
    those of shed and dissolved tasks (``states.shed``, ``states.released``).

    ``started`` are to be started in this order, ``passed_over`` holds new counts of waiting tasks, ``raised`` are
    waiting tasks that an operator prioritised. ``readmitted`` chunks were deferred and are in new tasks; ``analysed``
    chunks were scored.
    """

    rows: tuple[StoredChunk, ...] = ()
    removed: tuple[ChunkKey, ...] = ()
    created: tuple[PlannedTask, ...] = ()
    dissolved: tuple[tuple[str, str], ...] = ()
    cancelled: tuple[tuple[str, str], ...] = ()
    shed: tuple[str, ...] = ()
    started: tuple[str, ...] = ()
    passed_over: tuple[tuple[str, int], ...] = ()
    readmitted: tuple[ChunkKey, ...] = ()
    raised: tuple[str, ...] = ()
    analysed: tuple[ChunkKey, ...] = ()
    refusals: tuple[Refusal, ...] = ()
