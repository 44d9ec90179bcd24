"""Read the partial batches of other shards that may join those of a poll's queues; no query if no policy allows it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from engine.lanes.profiles.plan.consolidation import is_consolidating
from engine.lanes.profiles.plan.levels import due_partial_batch
from engine.lanes.profiles.plan.model import BlockQueue, QueuedBlock
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState

BLOCK_FIELDS = ("id", "ulid", "arrived_at_ms", "created_at_ms", "size_bytes")


def with_partial_batches(queues: Sequence[BlockQueue], *, now_ms: int) -> tuple[BlockQueue, ...]:
    """Return the queues; those whose partial batch is due have the partial batches of other shards that may join.

    Two queries per tenant and level with such a queue; the number of other queues read is the block limit of a job.
    """
    leaders = [queue for queue in queues if _leads(queue, now_ms)]
    one_of_each = {_group(leader): leader for leader in leaders}
    others = {group: _partial_batches_like(leader, now_ms) for group, leader in one_of_each.items()}
    return tuple(
        replace(queue, partial_batches=tuple(other for other in others[_group(queue)] if other.id != queue.id))
        if queue in leaders
        else queue
        for queue in queues
    )


def _leads(queue: BlockQueue, now_ms: int) -> bool:
    return is_consolidating(queue.policy, queue.tenant) and bool(due_partial_batch(queue, now_ms=now_ms))


def _group(queue: BlockQueue) -> tuple[str, str, int]:
    return (queue.lane, queue.tenant, queue.level)


def _partial_batches_like(leader: BlockQueue, now_ms: int) -> list[BlockQueue]:
    """Return the oldest partial batches of the leader's tenant and level, of any shard."""
    policy = leader.policy
    # Same condition as engine.lanes.profiles.plan.consolidation.is_partial_batch, which checks again.
    rows = LevelQueue.objects.filter(
        lane=leader.lane,
        tenant=leader.tenant,
        level=leader.level,
        block_count__gt=0,
        block_count__lt=policy.blocks_max,
        byte_count__lt=policy.partial_batch_bytes,
        oldest_arrival_ms__lt=now_ms - policy.partial_batch_age_ms,
    ).order_by("oldest_arrival_ms", "id")[: policy.blocks_max + 1]
    blocks = _blocks_of(row.id for row in rows)
    return [
        BlockQueue(
            id=row.id,
            lane=row.lane,
            tenant=row.tenant,
            shard=row.shard,
            level=row.level,
            policy=policy,
            blocks=tuple(blocks.get(row.id, ())),
            served_at_ms=row.served_at_ms,
        )
        for row in rows
    ]


def _blocks_of(queue_ids: Iterable[int]) -> dict[int, list[QueuedBlock]]:
    """Return the blocks of these queues in arrival order."""
    found: dict[int, list[QueuedBlock]] = {}
    queued = Block.objects.filter(queue_id__in=list(queue_ids), state=BlockState.QUEUED)
    for queue_id, *values in queued.order_by("queue_id", "arrived_at_ms", "ulid").values_list(
        "queue_id", *BLOCK_FIELDS
    ):
        found.setdefault(queue_id, []).append(QueuedBlock(**dict(zip(BLOCK_FIELDS, values, strict=True))))
    return found
