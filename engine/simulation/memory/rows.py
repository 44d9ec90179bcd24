"""The rows of the schedule and index in memory, as in the tables of the web application."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from engine.core.fast_dataclasses import fast_init
from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.plan.model import LevelPolicy, QueuedBlock
from engine.schedule.model import JobState

LANE = "profiles"
FINAL_LEVEL = 3


class BlockState(enum.StrEnum):
    """State of a block."""

    QUEUED = "queued"  # live, waits for a job
    OWNED = "owned"  # live, a source of one job
    FINAL = "final"  # live, on the highest level
    REPLACED = "replaced"  # its data is in the results of a job; the object is to be deleted
    DROPPED = "dropped"  # its data was removed; the object is to be deleted
    DELETED = "deleted"  # its object is deleted


LIVE_BLOCKS = frozenset({BlockState.QUEUED, BlockState.OWNED, BlockState.FINAL})
REMOVED_BLOCKS = frozenset({BlockState.REPLACED, BlockState.DROPPED})
"""Not in the index, but the object still exists."""

DatasetKey = tuple[str, str]
"""Tenant and service."""


@fast_init
@dataclass(frozen=True, slots=True)
class Share:
    """A service's data in a block: the number of its segments and the sum of their digests."""

    tenant: str
    count: int
    digest: int
    service: str = ""


@dataclass(slots=True, eq=False)
class MemoryBlock:
    """A block row. ``view`` is its form for the planner; ``sources`` are the ids that it replaced.

    The bytes obey delete commands up to ``masks_applied``; ``max_time_ms`` is the end of the data.
    """

    ulid: str
    tenant: str
    shard: int
    level: int
    size_bytes: int
    shares: tuple[Share, ...]
    view: QueuedBlock
    state: BlockState
    owner: MemoryJob | None = None
    queue: MemoryQueue | None = None
    sources: tuple[str, ...] = ()
    masks_applied: int = 0
    max_time_ms: int = 0

    def __lt__(self, other: MemoryBlock) -> bool:
        """Order two rows with one id, which exist only under the sabotage of the ledger."""
        return self.view.id < other.view.id


@dataclass(slots=True, eq=False)
class MemoryJob:
    """A job row.

    ``masks`` are the delete masks of the run under its token. ``root`` is the id of the planned job that it is a part
    of (0: none), ``since_index`` the command from which its failures count as evidence.
    """

    id: int
    name: str
    tenant: str
    shard: int
    level: int
    state: JobState
    sources: tuple[MemoryBlock, ...]
    size_bytes: int
    added_at_ms: int
    ready_at_ms: int
    priority_ms: int
    token: int = 0
    worker: str = ""
    lease_expires_ms: int = 0
    failures: int = 0
    parked_reason: str = ""
    parked_kind: str = ""
    failures_max: int | None = None
    is_rewrite: bool = False
    masks: tuple[DeleteMask, ...] = ()
    root: int = 0
    since_index: int = 0


@dataclass(slots=True, eq=False)
class MemoryQueue:
    """A level queue: its blocks by (arrival, id), and their sums.

    ``place_ms`` is its position among the queues of its tenant: the time it became ready or was last served, None if it
    is empty.
    """

    id: int
    tenant: str
    shard: int
    level: int
    policy: LevelPolicy
    entries: list[tuple[int, str, MemoryBlock]] = field(default_factory=list)
    byte_count: int = 0
    served_at_ms: int = 0
    place_ms: int | None = None


@dataclass(slots=True, eq=False)
class TenantRow:
    """A tenant of the lane: virtual time, running jobs and their cap, and its queues in order."""

    tenant: str
    weight: int = 100
    virtual_time: int = 0
    running_count: int = 0
    running_max: int = 0
    queues: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Tombstone:
    """A replaced object: the time from which it may be deleted, and whether its deletion was dispatched."""

    ulid: str
    eligible_at_ms: int
    is_dispatched: bool = False


@fast_init
@dataclass(frozen=True, slots=True)
class NewBlock:
    """A block to register."""

    ulid: str
    tenant: str
    shard: int
    level: int
    size_bytes: int
    created_at_ms: int
    shares: tuple[Share, ...]
    sources: tuple[str, ...] = ()
    max_time_ms: int = 0

    def digest(self) -> int:
        """Return a digest that distinguishes a repeated registration from another block with the same id."""
        return hash((self.size_bytes, *[share.digest for share in self.shares]))


@dataclass(frozen=True, slots=True)
class Removal:
    """Data removed from one block: these shares; the whole block unless ``is_trim``."""

    block: MemoryBlock
    shares: tuple[Share, ...]
    is_trim: bool = False
