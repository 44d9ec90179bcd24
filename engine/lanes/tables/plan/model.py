"""The nouns of timeline compaction: segments, chunks, tasks, the state store. Times are ms, ends exclusive."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine.core.quick_values import quickly_built
from engine.core.sizes import size_text
from engine.core.time_texts import moment
from engine.lanes.tables.plan import words

ChunkKey = tuple[str, int]
"""Data source, start of the chunk."""

PRIORITY_UNIT = 1_000_000
"""Priorities are whole numbers of this unit's parts: millionths, from 1 to 1,000,000."""


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One immutable object of a timeline, as the index knows it.

    ``key`` is the caller's row id; within a data source (interval, version, partition) is unique too. Versions are
    compared as texts. ``core_partitions`` partitions of one (interval, version) were published together: until all of
    them are known nothing of it is visible; 0 if that means nothing for it. ``size_bytes`` and ``rows`` are None where
    nobody knows. A tombstone has no rows and hides older data. ``folder`` is where a file's constant columns are
    written in its path: files of different folders never become one.

    The others are of data written under segment locks: of equal version those with the higher ``minor_version`` hide
    those whose partitions ``[root_start, root_end)`` they contain, as soon as all ``group_size`` of them are known;
    ``root_end`` of None is one's own partition.
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


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of time within one chunk in which a segment is visible."""

    segment: Segment
    start_ms: int
    end_ms: int


class Action(StrEnum):
    """What the rules say of a chunk."""

    SKIPPED = "skipped"
    EMPTY = "empty"
    STABLE = "stable"
    NO_OPINION = "no-opinion"
    COMPACT = "compact"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """One time chunk with what the rules looked at and what they say.

    ``version`` (the highest), ``count`` (segments, tombstones too) and ``digest`` tell whether anything is visible in
    it that was not, or the other way round. ``keys`` are the visible segments, sorted; ``shared`` those of them with
    data that have a visible piece in another chunk too, ``shared_tombstones`` the others that have.
    ``reaches_start`` and ``reaches_end``: the timeline has something at its first and last instant.

    ``segments`` are those with data; they need ``fit`` objects at least, the visible bytes of them ``out``. ``bytes``
    are estimated by time where segments are visible in part. The last five tell what is to be gained, from 0 to 1,
    and are 0 unless the action is to compact; ``priority`` is in millionths. ``cause`` is a key of ``words.CHUNK``.
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
    cause: str = words.NOTHING
    detail: str = ""
    fragmentation: float = 0.0
    oversize: float = 0.0
    alignment: float = 0.0
    recency: float = 0.0
    priority: int = 0

    @property
    def reason(self) -> str:
        """Why the rules say so, in words; estimates are named as such."""
        text = words.CHUNK[self.cause].format(
            detail=self.detail,
            segments=self.segments,
            bytes=size_text(self.bytes),
            largest=size_text(self.largest_bytes),
            out=self.out,
        )
        return text + (" (some sizes are not known)" if self.is_estimate else "")


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTask:
    """Chunks that one job rewrites, in time order, each committed on its own.

    Tasks that share a segment have different colours; one may start when all in ``deps`` are over, each named by its
    ``name``. One of colour 0 may start at once. ``is_over_limit``: it costs more than a task should and cannot be cut:
    it runs alone.
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
        """The segments with a visible piece in it, tombstones too, sorted."""
        return tuple(sorted({key for chunk in self.chunks for key in chunk.keys}))

    @property
    def reason(self) -> str:
        """Why these chunks are a task, and what it waits for."""
        best = max(self.chunks, key=lambda chunk: chunk.priority)
        text = f"{len(self.chunks)} chunks from {moment(self.start_ms)}" if len(self.chunks) > 1 else "one chunk"
        text += f", of which the most urgent from {moment(best.start_ms)}: {best.reason}"
        if self.is_over_limit:
            text += "; it cannot be cut and costs more than a task should, so it runs alone"
        return text + (f"; after {', '.join(self.deps)}, which share segments with it" if self.deps else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePlan:
    """What the rules make of a whole timeline: its chunks in time order, and the tasks.

    ``unbounded`` are the segments that touch so many chunks that they were not cut into any.
    """

    source: str
    chunks: tuple[Chunk, ...] = ()
    tasks: tuple[PlannedTask, ...] = ()
    unbounded: tuple[int, ...] = ()


class ChunkState(StrEnum):
    """What the state store says of a chunk; ``skipped`` is not looked at now, for the reason its row gives."""

    EMPTY = "empty"
    STABLE = "stable"
    UNSTABLE = "unstable"
    DEFERRED = "deferred"
    SKIPPED = "skipped"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChunk:
    """A row of the state store: the chunk as it was when it was looked at last, and what became of it.

    ``fp`` is the fingerprint of the policy it was looked at under. ``task`` names the waiting or running task that has
    it, "" for none. ``outputs`` are the segments that the last successful task left in it, under ``outputs_fp``.
    ``failures`` counts the tasks that failed on it in a row; ``quarantined`` says why it is not tried again by itself,
    "" if it is. ``look_again_ms`` is when time alone changes what the rules say, None for never.
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
    look_again_ms: int | None = None

    @property
    def key(self) -> ChunkKey:
        return (self.source, self.chunk.start_ms)

    @property
    def reason(self) -> str:
        """Why it is in its state, in words."""
        text = self.chunk.reason
        if self.quarantined:
            return f"{text}; set aside after {self.failures} failures: {self.quarantined}"
        if self.state == "deferred":
            return f"{text}; put off, since more urgent work fills the queue"
        return f"{text}{words.IN_TASK}{self.task}" if self.task else text


class TaskState(StrEnum):
    """Where a task is in its life, as far as the controller has to know."""

    WAITING = "waiting"
    RUNNING = "running"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedTask:
    """A task that waits or runs.

    ``chunk_digests`` are the start and digest of each of its chunks, as it was planned; ``shared`` the segments that it
    may share with others; ``passed_over`` how often one behind it was started because it did not fit. ``fp`` is the
    fingerprint of the policy it was planned under, ``output_fp`` that of its outputs, ``grid`` of its granularity.
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


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A data source of which nothing was planned and nothing is changed, and why."""

    source: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """A stretch of a timeline that was read whole: no segment crosses its borders."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDecisions:
    """What is to be written down, all in one transaction, before any task starts.

    ``rows`` are the rows of the state store that change, ``gone`` those to be removed. ``created`` are new tasks and
    ``dissolved`` names waiting ones that no longer fit what is there, each with the reason; those in ``cancelled`` run
    and should be stopped. ``shed`` were put off; a new task that is shed at once is in neither ``created`` nor here:
    its chunks are deferred. Rows that the snapshot did not have are not among ``rows``: those of a task that is shed or
    dissolved are the caller's to change (``states.shed``, ``states.released``).

    ``started`` are to be started, in this order, and ``passed_over`` gives waiting tasks their new counts; ``raised``
    are waiting tasks that an operator wants first. ``readmitted`` were put off and are in new tasks; ``analysed`` are
    the chunks that were scored.
    """

    rows: tuple[StoredChunk, ...] = ()
    gone: tuple[ChunkKey, ...] = ()
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
