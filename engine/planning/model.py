"""The nouns of level planning: queued blocks, their queues and policies, planned jobs. Times are milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

QueueKey = tuple[str, str, int, int]
"""Lane, tenant ("" for segments), shard, level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelPolicy:
    """When the queued blocks of a level make a job, and how large its results are. Bytes 0 mean without limit.

    ``remnant_bytes`` switches consolidation on (``engine.planning.consolidation``): less than that in a shard, when its
    age makes it a job, is merged with what other shards have of the tenant and is older than ``remnant_age_ms``.
    """

    blocks_max: int
    age_ms: int
    spread_ms: int
    bytes_max: int = 0
    result_bytes_max: int = 0
    remnant_bytes: int = 0
    remnant_age_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedBlock:
    """A block no job owns: when it arrived (command time) and when it was created (the time in its ULID)."""

    id: int
    ulid: str
    arrived_at_ms: int
    created_at_ms: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockQueue:
    """The oldest queued blocks of one key in arrival order; ``is_whole`` says that none was left out.

    ``served_at_ms`` is when a job was last made of the queue (0: never): queues of a tenant take turns.
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

    def key(self) -> QueueKey:
        return (self.lane, self.tenant, self.shard, self.level)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job to be: its sources in merge order and since when they could have been merged."""

    name: str
    queue_id: int
    lane: str
    tenant: str
    shard: int
    level: int
    blocks: tuple[QueuedBlock, ...]
    ready_at_ms: int

    def size_bytes(self) -> int:
        return sum(block.size_bytes for block in self.blocks)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.name,
            "lane": self.lane,
            "tenant": self.tenant,
            "shard": self.shard,
            "level": self.level,
            "sources": [block.ulid for block in self.blocks],
        }
