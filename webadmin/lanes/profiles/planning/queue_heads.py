"""The oldest blocks of a level queue, as read by a poll."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.planning.level_queues import HeadState

BLOCK_COLUMNS = ("id", "ulid", "arrived_at_ms", "created_at_ms", "size_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHead:
    """A queue to be planned, as it was read, with its oldest blocks in order.

    ``planned_max`` of the blocks are for jobs of this poll; the others are for the sums without those. ``kept_out`` are
    blocks past retention, by row id; if these are all, ``behind`` are later blocks.
    """

    queue: LevelQueue
    policy: LevelPolicy
    blocks: tuple[QueuedBlock, ...]
    planned_max: int
    kept_out: frozenset[int] = frozenset()
    behind: tuple[QueuedBlock, ...] = ()

    def to_plan(self) -> BlockQueue:
        """Return the input for planning jobs."""
        queue = self.queue
        blocks = self.blocks
        if self.kept_out:
            blocks = self.behind or tuple(block for block in blocks if block.id not in self.kept_out)
        return BlockQueue(
            id=queue.id,
            lane=queue.lane,
            tenant=queue.tenant,
            shard=queue.shard,
            level=queue.level,
            policy=self.policy,
            blocks=blocks[: self.planned_max],
            is_whole=len(blocks) <= self.planned_max,
            served_at_ms=queue.served_at_ms,
        )

    def without(self, taken: Collection[int]) -> HeadState:
        """Return the front without these blocks, by row id."""
        rows = [(block.arrived_at_ms, block.size_bytes) for block in self.blocks if block.id not in taken]
        return HeadState(
            block_count=self.queue.block_count,
            byte_count=self.queue.byte_count,
            newest_arrival_ms=self.queue.newest_arrival_ms,
            taken_count=len(self.blocks) - len(rows),
            rows=rows,
        )


def queued_block(row: Sequence[Any]) -> QueuedBlock:
    """Return the block of a row of ``BLOCK_COLUMNS``."""
    id, ulid, arrived_at_ms, created_at_ms, size_bytes = row
    return QueuedBlock(
        id=id, ulid=ulid, arrived_at_ms=arrived_at_ms, created_at_ms=created_at_ms, size_bytes=size_bytes
    )
