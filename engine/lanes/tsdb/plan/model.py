"""The nouns of planning by interval: blocks, groups, where each block stands. Times are ms, ends exclusive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import gcd

import xxhash

from engine.core.quick_values import quickly_built
from engine.core.time_texts import moment
from engine.lanes.tsdb.plan import words
from engine.lanes.tsdb.plan.group_ids import group_id

SlotKey = tuple[str, int, int]
"""Group key, range, start of the slot."""

OUT_OF_ORDER_HINT = "from-out-of-order"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBlock:
    """A block as its ``meta.json``, its marks and our index tell of it.

    Blocks merge only with those of the same ``group_key`` (resolution and external labels as one text). It is part
    ``partition`` of ``partitions`` of a group cut by series hash, (0, 1) if it was never cut. ``index_bytes`` is None
    and ``uploaded_at_ms`` is None where nobody knows. ``sources`` are the level-1 blocks it descends from. Of the
    extensions, ``produced_by`` is the id of the group that made it and ``time_range_ms`` that group's range. A block
    that must not be merged says why in ``no_compact`` or ``quarantined``. ``is_failed`` is the flag of ``meta.json``.
    """

    ulid: str
    min_time_ms: int
    max_time_ms: int
    level: int = 1
    group_key: str = ""
    series: int = 0
    samples: int = 0
    index_bytes: int | None = None
    size_bytes: int = 0
    uploaded_at_ms: int | None = None
    sources: tuple[str, ...] = ()
    partition: int = 0
    partitions: int = 1
    produced_by: int | None = None
    time_range_ms: int | None = None
    no_compact: str = ""
    quarantined: str = ""
    is_deleted: bool = False
    is_failed: bool = False
    tombstones: int = 0
    hints: tuple[str, ...] = ()


def holds_part_of(partition: int, partitions: int, wanted: int, count: int) -> bool:
    """Say whether part ``partition`` of ``partitions`` can hold series of part ``wanted`` of ``count``."""
    step = gcd(partitions, count)
    return partition % step == wanted % step


def may_share_series(one: IntervalBlock, other: IntervalBlock) -> bool:
    """Say whether two blocks can hold the same series, as far as the parts tell that they are."""
    return holds_part_of(one.partition, one.partitions, other.partition, other.partitions)


def is_downsampled(group_key: str) -> bool:
    """Say whether blocks of a key (``<resolution>@<hash of labels>``) hold aggregates of samples, not samples."""
    resolution, at, _ = group_key.partition("@")
    return bool(at) and resolution.isdecimal() and int(resolution) > 0


class SlotState(StrEnum):
    """What there is to do in a slot. ``waiting``: something, but not yet; a slot without any block is ``empty``.

    ``too-large``: its group would have to be cut into parts, which the bucket does not allow.

    A plan knows no ``parked`` ones: whoever shows a slot says so of one whose group has a job that failed too often.
    """

    EMPTY = "empty"
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    PARKED = "parked"
    TOO_LARGE = "too-large"


class BlockState(StrEnum):
    """Where a block stands: in a group of this plan, in a job, waiting, final, kept out, or contained in others."""

    GROUPED = "grouped"
    TAKEN = "taken"
    WAITING = "waiting"
    FINAL = "final"
    SET_ASIDE = "set-aside"
    DUPLICATE = "duplicate"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class TakenGroup:
    """A group that a job has already: the plan leaves its blocks and its slot alone.

    ``state`` is ``ready`` while its jobs wait for a worker, ``running``, or ``waiting`` if they are parked: nothing is
    expected of it then until somebody looks. ``why`` is said to people as it is ("runs in job 17").
    """

    range_ms: int
    start_ms: int
    ulids: tuple[str, ...]
    group_key: str = ""
    state: SlotState = SlotState.RUNNING
    why: str = "a job has it"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class VisitMark:
    """A compactor's mark on a place, the id of a block or what its layout marks otherwise: who was there, and when."""

    place: str
    visitor: str
    visited_at_ms: int


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPart:
    """What one partition of a group reads; a part that no block has anything for does not exist."""

    partition: int
    blocks: tuple[IntervalBlock, ...]


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalGroup:
    """Blocks that are merged together, in merge order, into ``partitions`` parts. It is done when all parts are.

    ``cause`` is a key of ``words.GROUPED``; "" for what the times of the blocks say by themselves.
    """

    tenant: str
    group_key: str
    range_ms: int
    start_ms: int
    blocks: tuple[IntervalBlock, ...]
    partitions: int = 1
    cause: str = ""

    @property
    def end_ms(self) -> int:
        return self.start_ms + self.range_ms

    @property
    def slot(self) -> SlotKey:
        return (self.group_key, self.range_ms, self.start_ms)

    @property
    def is_vertical(self) -> bool:
        """Whether two of its blocks can hold samples of one series at the same time."""
        open_blocks: list[IntervalBlock] = []
        for block in self.blocks:
            open_blocks = [other for other in open_blocks if other.max_time_ms > block.min_time_ms]
            if any(may_share_series(other, block) for other in open_blocks):
                return True
            open_blocks.append(block)
        return False

    @property
    def level(self) -> int:
        """The level of its results: one more than the highest of its blocks; a block that is only cleaned up starts
        over."""
        is_cleaned = len(self.blocks) == 1 and self.partitions == 1
        return 1 if is_cleaned else 1 + max(block.level for block in self.blocks)

    @property
    def group_id(self) -> int:
        return group_id(self.tenant, self.start_ms, self.end_ms)

    @property
    def reason(self) -> str:
        """Why these blocks, in words."""
        slot = words.slot(self.range_ms, self.start_ms)
        cause = self.cause or (words.VERTICAL if self.is_vertical else words.HORIZONTAL)
        return words.GROUPED[cause].format(slot=slot, count=len(self.blocks), parts=words.parts(self.partitions))

    def parts(self) -> tuple[GroupPart, ...]:
        """Return the jobs that the group consists of, each with the blocks that hold something for it."""
        if self.partitions == 1:
            return (GroupPart(partition=0, blocks=self.blocks),)
        every = (
            GroupPart(
                partition=number,
                blocks=tuple(
                    block
                    for block in self.blocks
                    if holds_part_of(block.partition, block.partitions, number, self.partitions)
                ),
            )
            for number in range(self.partitions)
        )
        return tuple(part for part in every if part.blocks)

    def job_name(self, part: GroupPart) -> str:
        """Return a name that is equal for equal work: a hash of the sources, the tenant, the interval, the part."""
        digest = xxhash.xxh64_intdigest("".join(block.ulid for block in part.blocks).encode())
        return f"{digest:x}-T{self.tenant}-I{self.start_ms}-{self.end_ms}-P{part.partition}of{self.partitions}"


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A block whose data the others hold as well, since they descend from all that it descends from."""

    block: IntervalBlock
    covered_by: tuple[str, ...]


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where blocks stand and why; shared by the blocks of a slot.

    ``until_ms`` is when time alone changes it, None if it does not. ``detail`` completes the reason.
    """

    state: BlockState
    cause: str
    range_ms: int = 0
    start_ms: int = 0
    until_ms: int | None = None
    detail: str = ""

    @property
    def reason(self) -> str:
        """The reason in words."""
        return words.STANDING[self.cause].format(
            slot=words.slot(self.range_ms, self.start_ms),
            until=moment(self.until_ms) if self.until_ms is not None else "",
            detail=self.detail,
        )


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgress:
    """One slot that holds blocks: its state, how many blocks wait in it, and the compactions to the fix-point.

    ``blocks`` counts the live ones that are here now, unmerged or results of smaller slots, ``waiting`` those of them
    that a compaction is still to take. ``compactions`` are those of the slot itself, now or after those inside it,
    without waiting for more blocks or for time; one that a job has is among them.
    """

    group_key: str
    range_ms: int
    start_ms: int
    state: SlotState
    blocks: int = 0
    waiting: int = 0
    compactions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalPlan:
    """What is to be done for one tenant, in this order, and where every block of the snapshot stands.

    ``doubts`` says by id why a block stays that others descend from, though they cannot hold all of it.
    ``compactions`` is how many it takes until only time or new blocks give more to do (a group in one slot is one,
    whatever its parts; those that jobs have are among them), ``waiting`` how many of the blocks they take. ``refusal``
    says why nothing is planned at all, "" if it is not so. ``look_again_ms`` is the first moment at which time alone
    gives more to do, None for never.
    """

    tenant: str
    groups: tuple[IntervalGroup, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    standings: Mapping[str, Standing] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[SlotProgress, ...] = ()
    compactions: int = 0
    waiting: int = 0
    refusal: str = ""
    look_again_ms: int | None = None

    def explain(self, ulid: str) -> str:
        """Return where a block stands and why, in words; a block the snapshot did not have is not known."""
        standing = self.standings.get(ulid)
        return f"{standing.state}: {self.reason(ulid)}" if standing else "unknown: it was not in the snapshot"

    def reason(self, ulid: str) -> str:
        """Return why a block of the snapshot stands where it does, and why it is kept if it looks like a duplicate."""
        doubt = self.doubts.get(ulid)
        return self.standings[ulid].reason + (f"; it is kept: {doubt}" if doubt else "")
