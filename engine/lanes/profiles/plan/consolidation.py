"""Consolidate the partial batches of a tenant in several shards into one job instead of one job per shard.

Disabled unless the level policy sets ``partial_batch_bytes``. A *partial batch* is the content of a queue if it has
fewer bytes than ``partial_batch_bytes`` and fewer blocks than a full job. Consolidation delays nothing: when the oldest
partial batch is due by age, the others of the tenant and level that are older than ``partial_batch_age_ms`` join its
job. Invariants:

1. Only queues of one lane, tenant and level are consolidated; segments never (they hold many tenants).
2. A consolidated job keeps the policy's count, bytes and spread; a queue lends blocks from its front, once per plan.
3. The oldest partial batch leads; others join by age, oldest first. The result does not depend on the order of the
   queues.
4. The results get the shard of the newest source: the tenant writes there now, so later blocks meet the results.
5. Source ids are unique within a job; blocks of different shards may share an id, and the second waits for another job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from engine.lanes.profiles.plan.levels import cut_queue, due_partial_batch
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock, QueuePart
from engine.schedule.model import PlannedQueue


def plan_queues(queues: Sequence[BlockQueue], *, now_ms: int, job_max: int) -> tuple[PlannedQueue, ...]:
    """Return up to ``job_max`` jobs of each queue, partial batches consolidated."""
    return tuple(
        PlannedQueue(
            lane=queue.lane,
            tenant=queue.tenant,
            level=queue.level,
            served_at_ms=queue.served_at_ms,
            jobs=tuple(islice(cut_queue(queue, now_ms=now_ms), job_max)),
        )
        for queue in join_partial_batches(queues, now_ms=now_ms)
    )


def is_consolidating(policy: LevelPolicy, tenant: str) -> bool:
    """Return whether the policy consolidates partial batches of this tenant."""
    return policy.partial_batch_bytes > 0 and tenant != ""


def is_partial_batch(policy: LevelPolicy, *, block_count: int, byte_count: int, oldest_ms: int, now_ms: int) -> bool:
    """Return whether a queue with these sums may lend its blocks at ``now_ms``."""
    is_small = 0 < block_count < policy.blocks_max and byte_count < policy.partial_batch_bytes
    return is_small and now_ms > oldest_ms + policy.partial_batch_age_ms


def join_partial_batches(queues: Sequence[BlockQueue], *, now_ms: int) -> Sequence[BlockQueue]:
    """Return the queues with the blocks that join them; queues that lend blocks are omitted from this plan."""
    if not any(queue.partial_batches for queue in queues):
        return queues
    lent: set[int] = set()
    joined: dict[int, BlockQueue] = {}
    for queue in sorted(queues, key=_age):
        if queue.id in lent:
            continue
        own = due_partial_batch(queue, now_ms=now_ms)
        joined[queue.id] = queue
        if own and is_consolidating(queue.policy, queue.tenant) and _size(own) < queue.policy.partial_batch_bytes:
            others = [other for other in queue.partial_batches if other.id not in lent and other.id not in joined]
            parts = tuple(_joining(queue, own, sorted(others, key=_age), now_ms))
            lent.update(part.queue_id for part in parts)
            joined[queue.id] = replace(queue, joining=parts)
    return tuple(joined[queue.id] for queue in queues if queue.id in joined)


def _joining(
    leader: BlockQueue, own: tuple[QueuedBlock, ...], others: Sequence[BlockQueue], now_ms: int
) -> Iterator[QueuePart]:
    """Yield the blocks that each other queue adds to the leader's partial batch until the job is full."""
    taken = list(own)
    for other in others:
        if _may_lend(leader, other, now_ms):
            blocks = _front(leader.policy, taken, other.blocks)
            if blocks:
                taken += blocks
                yield QueuePart(queue_id=other.id, shard=other.shard, blocks=blocks)


def _may_lend(leader: BlockQueue, other: BlockQueue, now_ms: int) -> bool:
    is_same_level = (other.lane, other.tenant, other.level) == (leader.lane, leader.tenant, leader.level)
    if not is_same_level or other.id == leader.id or not other.blocks or not other.is_whole:
        return False
    return is_partial_batch(
        leader.policy,
        block_count=len(other.blocks),
        byte_count=_size(other.blocks),
        oldest_ms=other.blocks[0].arrived_at_ms,
        now_ms=now_ms,
    )


def _front(policy: LevelPolicy, taken: Sequence[QueuedBlock], blocks: Sequence[QueuedBlock]) -> tuple[QueuedBlock, ...]:
    """Return the leading blocks that fit into the job."""
    ids = {block.ulid for block in taken}
    size, count = _size(taken), len(taken)
    earliest, latest = min(b.created_at_ms for b in taken), max(b.created_at_ms for b in taken)
    for position, block in enumerate(blocks):
        size += block.size_bytes
        earliest, latest = min(earliest, block.created_at_ms), max(latest, block.created_at_ms)
        is_full = count + position == policy.blocks_max or 0 < policy.bytes_max < size
        if is_full or latest - earliest > policy.spread_ms or block.ulid in ids:
            return tuple(blocks[:position])
    return tuple(blocks)


def _age(queue: BlockQueue) -> tuple[str, str, int, int, str, int]:
    first = queue.blocks[0] if queue.blocks else None
    arrived_at_ms, ulid = (first.arrived_at_ms, first.ulid) if first else (0, "")
    return (queue.lane, queue.tenant, queue.level, arrived_at_ms, ulid, queue.shard)


def _size(blocks: Sequence[QueuedBlock]) -> int:
    return sum(block.size_bytes for block in blocks)
