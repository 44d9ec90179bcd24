"""Data model of planning by interval: blocks, groups, and the status of each block. Times are ms, ends exclusive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import gcd

import xxhash

from engine.core.fast_dataclasses import fast_init
from engine.core.formatting import format_time
from engine.lanes.tsdb.plan import reasons

_FNV_OFFSET = 2166136261
_FNV_PRIME = 16777619
_FNV_MASK = 0xFFFFFFFF


def fnv1a_32(text: str) -> int:
    """Return the 32-bit FNV-1a hash of the UTF-8 bytes."""
    value = _FNV_OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * _FNV_PRIME & _FNV_MASK
    return value


def group_id(tenant: str, start_ms: int, end_ms: int) -> int:
    """Return the id of a tenant's interval: the hash of tenant, start and end, concatenated without separators."""
    return fnv1a_32(f"{tenant}{start_ms}{end_ms}")


SlotKey = tuple[str, int, int]
"""Group key, range, start of the slot."""

OUT_OF_ORDER_HINT = "from-out-of-order"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalBlock:
    """A block as described by its ``meta.json``, its marks and the index.

    Blocks are merged only with blocks of the same ``group_key`` (resolution and external labels). A block is partition
    ``partition`` of ``partitions`` of a group partitioned by series hash, (0, 1) if unpartitioned. ``index_bytes`` and
    ``uploaded_at_ms`` are None if unknown. ``sources`` are the level-1 blocks it descends from. From the extensions,
    ``produced_by`` is the id of the group that produced it and ``time_range_ms`` that group's range. ``no_compact`` or
    ``quarantined`` is the reason if it must not be merged. ``is_failed`` is the flag of ``meta.json``.
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


def may_overlap_partition(partition: int, partitions: int, wanted: int, count: int) -> bool:
    """Return whether partition ``partition`` of ``partitions`` can hold series of partition ``wanted`` of ``count``."""
    step = gcd(partitions, count)
    return partition % step == wanted % step


def may_share_series(one: IntervalBlock, other: IntervalBlock) -> bool:
    """Return whether two blocks can hold the same series, judged by their partitions."""
    return may_overlap_partition(one.partition, one.partitions, other.partition, other.partitions)


def is_downsampled(group_key: str) -> bool:
    """Return whether blocks of a key (``<resolution>@<hash of labels>``) are downsampled."""
    resolution, at, _ = group_key.partition("@")
    return bool(at) and resolution.isdecimal() and int(resolution) > 0


class SlotState(StrEnum):
    """The state of a slot. ``waiting``: it has work that cannot start yet; ``empty``: it has no block.

    ``too-large``: its group would have to be partitioned, which the bucket does not allow. ``parked`` is never set by a
    plan; pages show it for slots whose group has a parked job.
    """

    EMPTY = "empty"
    WAITING = "waiting"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    PARKED = "parked"
    TOO_LARGE = "too-large"


class BlockState(StrEnum):
    """The state of a block: in a group of this plan, in a job, waiting, final, excluded, or a duplicate."""

    GROUPED = "grouped"
    TAKEN = "taken"
    WAITING = "waiting"
    FINAL = "final"
    SET_ASIDE = "set-aside"
    DUPLICATE = "duplicate"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class TakenGroup:
    """A group that is in jobs; the plan leaves its blocks and its slot alone.

    ``state`` is ``ready`` while its jobs wait for a worker, ``running``, or ``waiting`` if they are parked, which needs
    an operator. ``why`` is shown as it is ("runs in job 17").
    """

    range_ms: int
    start_ms: int
    ulids: tuple[str, ...]
    group_key: str = ""
    state: SlotState = SlotState.RUNNING
    why: str = "it is in a job"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class VisitMark:
    """A compactor's visit mark on a block or on another place of its layout: visitor and time."""

    place: str
    visitor: str
    visited_at_ms: int


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """The blocks that one partition of a group reads; partitions without blocks do not exist."""

    partition: int
    blocks: tuple[IntervalBlock, ...]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalGroup:
    """Blocks that are merged together, in merge order, into ``partitions`` partitions. It is done when all are.

    ``cause`` is a key of ``reasons.GROUP_REASONS``; "" if it follows from the times of the blocks.
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
        """Whether two of its blocks can hold samples of one series in overlapping times."""
        open_blocks: list[IntervalBlock] = []
        for block in self.blocks:
            open_blocks = [other for other in open_blocks if other.max_time_ms > block.min_time_ms]
            if any(may_share_series(other, block) for other in open_blocks):
                return True
            open_blocks.append(block)
        return False

    @property
    def level(self) -> int:
        """The level of its results: one above the highest of its blocks; 1 for a single block that is rewritten."""
        is_rewrite = len(self.blocks) == 1 and self.partitions == 1
        return 1 if is_rewrite else 1 + max(block.level for block in self.blocks)

    @property
    def group_id(self) -> int:
        return group_id(self.tenant, self.start_ms, self.end_ms)

    @property
    def reason(self) -> str:
        """The reason for the group, as text."""
        slot = reasons.slot_text(self.range_ms, self.start_ms)
        cause = self.cause or (reasons.VERTICAL if self.is_vertical else reasons.HORIZONTAL)
        return reasons.GROUP_REASONS[cause].format(
            slot=slot, count=len(self.blocks), parts=reasons.partitions_text(self.partitions)
        )

    def group_partitions(self) -> tuple[GroupPartition, ...]:
        """Return the partitions of the group that have blocks, one per job."""
        if self.partitions == 1:
            return (GroupPartition(partition=0, blocks=self.blocks),)
        every = (
            GroupPartition(
                partition=number,
                blocks=tuple(
                    block
                    for block in self.blocks
                    if may_overlap_partition(block.partition, block.partitions, number, self.partitions)
                ),
            )
            for number in range(self.partitions)
        )
        return tuple(part for part in every if part.blocks)

    def job_name(self, part: GroupPartition) -> str:
        """Return a name that is equal for equal work: a hash of the sources, the tenant, interval and partition."""
        digest = xxhash.xxh64_intdigest("".join(block.ulid for block in part.blocks).encode())
        return f"{digest:x}-T{self.tenant}-I{self.start_ms}-{self.end_ms}-P{part.partition}of{self.partitions}"


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A block whose data other blocks contain, since they descend from all its sources."""

    block: IntervalBlock
    covered_by: tuple[str, ...]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStatus:
    """The state and reason of blocks, shared by the blocks of a slot.

    ``until_ms`` is when time alone changes it, None if never. ``detail`` completes the reason.
    """

    state: BlockState
    cause: str
    range_ms: int = 0
    start_ms: int = 0
    until_ms: int | None = None
    detail: str = ""

    @property
    def reason(self) -> str:
        """The reason, as text."""
        return reasons.BLOCK_REASONS[self.cause].format(
            slot=reasons.slot_text(self.range_ms, self.start_ms),
            until=format_time(self.until_ms) if self.until_ms is not None else "",
            detail=self.detail,
        )


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgress:
    """One slot with blocks: its state, waiting blocks, and remaining compactions.

    ``blocks`` counts the current live blocks, unmerged ones and results of smaller slots; ``waiting`` those of them
    that a compaction will still read. ``compactions`` counts the slot's own compactions, now or after those inside it,
    without waiting for more blocks or time; running ones are included.
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
    """The plan for one tenant: groups in order of execution, duplicates, and the status of every block.

    ``doubts`` is, by id, why an apparent duplicate is kept. ``compactions`` is the number of compactions until only
    time or new blocks create more work (a group counts once, whatever its partitions; those in jobs are included),
    ``waiting`` the number of blocks they read. ``refusal`` is why nothing is planned, "" if planning is possible.
    ``recheck_ms`` is the first time at which time alone creates work, None for never.
    """

    tenant: str
    groups: tuple[IntervalGroup, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    statuses: Mapping[str, BlockStatus] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[SlotProgress, ...] = ()
    compactions: int = 0
    waiting: int = 0
    refusal: str = ""
    recheck_ms: int | None = None

    def explain(self, ulid: str) -> str:
        """Return state and reason of a block as text; blocks outside the snapshot are unknown."""
        status = self.statuses.get(ulid)
        return f"{status.state}: {self.reason(ulid)}" if status else "unknown: not in the snapshot"

    def reason(self, ulid: str) -> str:
        """Return the reason of a block's state, and why it is kept if it looks like a duplicate."""
        doubt = self.doubts.get(ulid)
        return self.statuses[ulid].reason + (f"; it is kept: {doubt}" if doubt else "")
