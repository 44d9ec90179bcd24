"""Data types of level planning: queued blocks, their queues and policies, planned jobs. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.fast_dataclasses import fast_init

QueueKey = tuple[str, str, int, int]
"""Lane, tenant ("" for segments), shard, level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicy:
    """Thresholds at which queued blocks of a level become a job, and the size of its results. 0 bytes: unlimited.

    ``partial_batch_bytes`` enables consolidation (``engine.lanes.profiles.plan.consolidation``): fewer bytes than that
    in a shard, when they are due by age, are merged with the tenant's blocks in other shards that are older than
    ``partial_batch_age_ms``.
    """

    blocks_max: int
    age_ms: int
    spread_ms: int
    bytes_max: int = 0
    result_bytes_max: int = 0
    partial_batch_bytes: int = 0
    partial_batch_age_ms: int = 0


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBlock:
    """A block without a job, with its arrival (command time) and its creation (the time in its ULID)."""

    id: int
    ulid: str
    arrived_at_ms: int
    created_at_ms: int
    size_bytes: int


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePart:
    """The blocks that a job takes from the front of one queue."""

    queue_id: int
    shard: int
    blocks: tuple[QueuedBlock, ...]


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQueue:
    """The oldest queued blocks of one key in arrival order; ``is_whole``: all blocks of the queue are included.

    ``served_at_ms`` is the time at which a job was last planned from the queue (0: never); the queues of a tenant are
    served in rotation. ``partial_batches`` are whole queues of the same tenant and level in other shards, read if the
    policy allows consolidation; ``joining`` holds the blocks of them that are merged with this queue's partial batch
    (``engine.lanes.profiles.plan.consolidation`` decides).
    """

    id: int
    lane: str
    tenant: str
    shard: int
    level: int
    policy: LevelPolicy
    blocks: tuple[QueuedBlock, ...]
    is_whole: bool = True
    served_at_ms: int = 0
    partial_batches: tuple[BlockQueue, ...] = ()
    joining: tuple[QueuePart, ...] = ()

    def key(self) -> QueueKey:
        return (self.lane, self.tenant, self.shard, self.level)


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A planned job: its sources in merge order and the time since which they could be merged.

    ``parts`` lists the queues of a consolidation's sources; it is empty if all sources are from the job's own queue.
    ``shard`` is the shard of the results.
    """

    name: str
    queue_id: int
    lane: str
    tenant: str
    shard: int
    level: int
    blocks: tuple[QueuedBlock, ...]
    ready_at_ms: int
    parts: tuple[QueuePart, ...] = ()

    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks)

    def source_count(self) -> int:
        return len(self.blocks)

    def taken(self) -> tuple[QueuePart, ...]:
        """Return the blocks that the job takes from each queue."""
        return self.parts or (QueuePart(queue_id=self.queue_id, shard=self.shard, blocks=self.blocks),)

    def source_shards(self) -> dict[str, int]:
        """Return shards by source id, for the sources outside the shard of the results."""
        return {block.ulid: part.shard for part in self.parts if part.shard != self.shard for block in part.blocks}

    def to_json(self) -> dict[str, Any]:
        moved = self.source_shards()
        return {
            "job": self.name,
            "lane": self.lane,
            "tenant": self.tenant,
            "shard": self.shard,
            "level": self.level,
            "sources": [block.ulid for block in self.blocks],
        } | ({"source_shards": moved} if moved else {})
