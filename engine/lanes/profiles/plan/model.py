"""The nouns of level planning: queued blocks, their queues and policies, planned jobs. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.core.quick_values import quickly_built

QueueKey = tuple[str, str, int, int]
"""Lane, tenant ("" for segments), shard, level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicy:
    """When the queued blocks of a level make a job, and how large its results are. Bytes 0 mean without limit.

    ``remnant_bytes`` switches consolidation on (``engine.lanes.profiles.plan.consolidation``): less than that in a
    shard, when its age makes it a job, is merged with what other shards have of the tenant and is older than
    ``remnant_age_ms``.
    """

    blocks_max: int
    age_ms: int
    spread_ms: int
    bytes_max: int = 0
    result_bytes_max: int = 0
    remnant_bytes: int = 0
    remnant_age_ms: int = 0


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBlock:
    """A block no job owns: when it arrived (command time) and when it was created (the time in its ULID)."""

    id: int
    ulid: str
    arrived_at_ms: int
    created_at_ms: int
    size_bytes: int


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePart:
    """Blocks that a job takes from the front of one queue."""

    queue_id: int
    shard: int
    blocks: tuple[QueuedBlock, ...]


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQueue:
    """The oldest queued blocks of one key in arrival order; ``is_whole`` says that none was left out.

    ``served_at_ms`` is when a job was last made of the queue (0: never): queues of a tenant take turns. ``remnants``
    are whole queues of the same tenant and level in other shards, read where the policy lets them join; ``joining`` is
    what of them joins this queue's own remnant (``engine.lanes.profiles.plan.consolidation`` decides).
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
    remnants: tuple[BlockQueue, ...] = ()
    joining: tuple[QueuePart, ...] = ()

    def key(self) -> QueueKey:
        return (self.lane, self.tenant, self.shard, self.level)


@quickly_built
@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job to be: its sources in merge order and since when they could have been merged.

    ``parts`` says of a consolidation which queues, in several shards, its sources come from; it is empty where all come
    from the job's own queue. ``shard`` is that of its results.
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
        """Return what the job takes from each queue."""
        return self.parts or (QueuePart(queue_id=self.queue_id, shard=self.shard, blocks=self.blocks),)

    def source_shards(self) -> dict[str, int]:
        """Return the shards of those sources, by id, that are not in the shard of the results."""
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
