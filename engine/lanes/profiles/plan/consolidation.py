"""Joins the remnants that a tenant has left in several shards, so that one job merges them instead of one job each.

Off unless a level's policy has ``remnant_bytes``. A *remnant* is all that waits in a queue, if that is less than
``remnant_bytes`` and fewer blocks than make a job. Nothing waits longer for being a remnant: when the first one's age
makes it a job, the others of the tenant and level join it that are older than ``remnant_age_ms``. So:

1. Only queues of one lane, tenant and level join, never segments (they hold many tenants, and their shard is where
   those write).
2. A joined job keeps the policy's count, bytes and spread; a queue lends blocks from its front, and once in a plan.
3. The oldest remnant leads; others join in the order of their age. The same queues give the same jobs in any order.
4. The results bear the shard of the newest source: that is where the tenant writes now, so that they meet what comes.
5. No two sources have one id, as blocks of different shards may: the second one waits for a job of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from engine.lanes.profiles.plan.levels import cut_queue, due_remnant
from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, QueuedBlock, QueuePart
from engine.schedule.model import PlannedQueue


def plan_queues(queues: Sequence[BlockQueue], *, now_ms: int, job_max: int) -> tuple[PlannedQueue, ...]:
    """Return up to ``job_max`` jobs of each queue, remnants joined."""
    return tuple(
        PlannedQueue(
            lane=queue.lane,
            tenant=queue.tenant,
            level=queue.level,
            served_at_ms=queue.served_at_ms,
            jobs=tuple(islice(cut_queue(queue, now_ms=now_ms), job_max)),
        )
        for queue in join_remnants(queues, now_ms=now_ms)
    )


def is_consolidating(policy: LevelPolicy, tenant: str) -> bool:
    """Say whether remnants of this tenant may join under the policy."""
    return policy.remnant_bytes > 0 and tenant != ""


def is_remnant(policy: LevelPolicy, *, block_count: int, byte_count: int, oldest_ms: int, now_ms: int) -> bool:
    """Say whether a queue with these sums may lend its blocks now."""
    is_small = 0 < block_count < policy.blocks_max and byte_count < policy.remnant_bytes
    return is_small and now_ms > oldest_ms + policy.remnant_age_ms


def join_remnants(queues: Sequence[BlockQueue], *, now_ms: int) -> Sequence[BlockQueue]:
    """Return the queues with what joins them; those that lend to another are left out, they have their turn later."""
    if not any(queue.remnants for queue in queues):
        return queues
    lent: set[int] = set()
    joined: dict[int, BlockQueue] = {}
    for queue in sorted(queues, key=_age):
        if queue.id in lent:
            continue
        own = due_remnant(queue, now_ms=now_ms)
        joined[queue.id] = queue
        if own and is_consolidating(queue.policy, queue.tenant) and _size(own) < queue.policy.remnant_bytes:
            others = [other for other in queue.remnants if other.id not in lent and other.id not in joined]
            parts = tuple(_joining(queue, own, sorted(others, key=_age), now_ms))
            lent.update(part.queue_id for part in parts)
            joined[queue.id] = replace(queue, joining=parts)
    return tuple(joined[queue.id] for queue in queues if queue.id in joined)


def _joining(
    leader: BlockQueue, own: tuple[QueuedBlock, ...], others: Sequence[BlockQueue], now_ms: int
) -> Iterator[QueuePart]:
    """Yield what each of the others adds to the leader's remnant until the job is full."""
    taken = list(own)
    for other in others:
        if _may_lend(leader, other, now_ms):
            blocks = _front(leader.policy, taken, other.blocks)
            if blocks:
                taken += blocks
                yield QueuePart(queue_id=other.id, shard=other.shard, blocks=blocks)


def _may_lend(leader: BlockQueue, other: BlockQueue, now_ms: int) -> bool:
    is_kin = (other.lane, other.tenant, other.level) == (leader.lane, leader.tenant, leader.level)
    if not is_kin or other.id == leader.id or not other.blocks or not other.is_whole:
        return False
    return is_remnant(
        leader.policy,
        block_count=len(other.blocks),
        byte_count=_size(other.blocks),
        oldest_ms=other.blocks[0].arrived_at_ms,
        now_ms=now_ms,
    )


def _front(policy: LevelPolicy, taken: Sequence[QueuedBlock], blocks: Sequence[QueuedBlock]) -> tuple[QueuedBlock, ...]:
    """Return the first of these blocks that fit into the job."""
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
