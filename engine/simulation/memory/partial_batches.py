"""Read the partial batches of other shards that may join the queues of a poll, as the web application does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.lanes.profiles.plan.consolidation import is_consolidating, is_partial_batch
from engine.lanes.profiles.plan.levels import due_partial_batch
from engine.lanes.profiles.plan.model import BlockQueue
from engine.simulation.memory.queues import QueueBook
from engine.simulation.memory.rows import LANE, MemoryQueue


def with_partial_batches(book: QueueBook, queues: Sequence[BlockQueue], *, now_ms: int) -> tuple[BlockQueue, ...]:
    """Return the queues; those with a due partial batch get the partial batches of other shards that may join."""
    return tuple(
        [
            replace(queue, partial_batches=_partial_batches_like(book, queue, now_ms))
            if is_consolidating(queue.policy, queue.tenant) and due_partial_batch(queue, now_ms=now_ms)
            else queue
            for queue in queues
        ]
    )


def block_queue(queue: MemoryQueue, count: int) -> BlockQueue:
    """Return a queue with its first blocks in the planner's form."""
    return BlockQueue(
        id=queue.id,
        lane=LANE,
        tenant=queue.tenant,
        shard=queue.shard,
        level=queue.level,
        policy=queue.policy,
        blocks=tuple([entry[2].view for entry in queue.entries[:count]]),
        is_whole=len(queue.entries) <= count,
        served_at_ms=queue.served_at_ms,
    )


def _partial_batches_like(book: QueueBook, leader: BlockQueue, now_ms: int) -> tuple[BlockQueue, ...]:
    """Return the oldest partial batches of the leader's tenant and level in other shards."""
    policy = leader.policy
    peers = [book.by_id[number] for _, number in book.tenants[leader.tenant].queues]
    found = [
        queue
        for queue in peers
        if queue.level == leader.level
        and is_partial_batch(
            policy,
            block_count=len(queue.entries),
            byte_count=queue.byte_count,
            oldest_ms=queue.entries[0][0],
            now_ms=now_ms,
        )
    ]
    oldest = sorted(found, key=lambda queue: (queue.entries[0][0], queue.id))[: policy.blocks_max + 1]
    return tuple([block_queue(queue, len(queue.entries)) for queue in oldest if queue.id != leader.id])
