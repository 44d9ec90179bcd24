"""Keeps the sums of level queues true to the blocks in them, so that a poll need not look at the blocks.

Whoever moves blocks in or out of queues collects the differences and settles them here, last in the transaction
and in one order, which is why two of them never wait for each other in a circle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from django.db import models
from django.db.models import Q

from engine.planning.levels import ready_at_ms
from engine.planning.model import LevelPolicy, QueueKey
from engine.scheduling.priority import job_priority_ms
from webadmin.database.dialect import locked
from webadmin.index.models import Block
from webadmin.schedule.level_policies import LevelPolicies
from webadmin.schedule.models import LevelQueue

KEYS_PER_QUERY = 100
"""An OR of this many keys is well inside the databases' limits for one statement."""


@dataclass(slots=True)
class QueueChanges:
    """How many blocks and bytes came (or left: negative) per queue id."""

    blocks: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    bytes: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, queue_id: int, block_count: int, byte_count: int) -> None:
        """Note that so much came into the queue."""
        self.blocks[queue_id] += block_count
        self.bytes[queue_id] += byte_count


def intern_queues(keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
    """Return the row ids of these queues, making those that are new."""
    wanted = sorted(set(keys))
    known = _queue_ids(wanted)
    missing = [key for key in wanted if key not in known]
    if missing:
        rows = [
            LevelQueue(lane=lane, tenant=tenant, shard=shard, level=level) for lane, tenant, shard, level in missing
        ]
        LevelQueue.objects.bulk_create(rows, ignore_conflicts=True)
        known |= _queue_ids(missing)
    return known


def settle_queues(
    changes: QueueChanges,
    policies: LevelPolicies,
    *,
    served_at_ms: int | None = None,
    noticed: Collection[int] = (),
) -> None:
    """Bring the sums of the changed queues up to date. Call it after the blocks were moved, in the same transaction.

    ``served_at_ms`` and ``noticed`` are for polls, which hold the head: jobs were made of the queues that lost blocks,
    the noticed ones (by id) were found ready, and queues that are no longer ready are no longer noticed either.

    An empty queue is never noticed, or its tenant could sleep while nobody notices the blocks that come into it next:
    not one that another poll has emptied since this one found it ready, nor one whose last blocks were removed.
    """
    queues = list(locked(LevelQueue.objects.filter(id__in={*changes.blocks, *noticed}).order_by("id")))
    policies.load(queue.tenant for queue in queues)
    only_noticed = LevelQueue.objects.filter(id__in=[id for id in noticed if id not in changes.blocks])
    only_noticed.filter(block_count__gt=0).update(is_noticed=True)
    for queue in queues:
        if queue.id not in changes.blocks:
            continue
        queue.is_noticed |= queue.id in noticed
        queue.block_count += changes.blocks[queue.id]
        queue.byte_count += changes.bytes[queue.id]
        if served_at_ms is not None and changes.blocks[queue.id] < 0:
            queue.served_at_ms = served_at_ms
        _summarise(queue, policies.of(queue.lane, queue.tenant, queue.level))
        if served_at_ms is not None and queue.is_noticed:
            queue.is_noticed = queue.ready_at_ms is not None and queue.ready_at_ms <= served_at_ms
        queue.is_noticed &= queue.block_count > 0
        queue.save()


def resettle_queues(rows: models.QuerySet[LevelQueue], policies: LevelPolicies) -> int:
    """Work out anew since when these queues are ready, after their policy was changed; return how many there were."""
    queues = list(locked(rows.filter(block_count__gt=0).order_by("id")))
    policies.load(queue.tenant for queue in queues)
    for queue in queues:
        _summarise(queue, policies.of(queue.lane, queue.tenant, queue.level))
        queue.save()
    return len(queues)


def _summarise(queue: LevelQueue, policy: LevelPolicy) -> None:
    queued = Block.objects.queued_in(queue.id)
    front = list(queued.values_list("arrived_at_ms", "size_bytes")[: policy.blocks_max])
    queue.oldest_arrival_ms = queue.newest_arrival_ms = queue.ready_at_ms = queue.priority_ms = None
    if not front:
        return
    arrivals = [arrived_at_ms for arrived_at_ms, _ in front]
    queue.oldest_arrival_ms = arrivals[0]
    is_all = len(front) == queue.block_count
    queue.newest_arrival_ms = arrivals[-1] if is_all else queued.reverse().values_list("arrived_at_ms", flat=True)[0]
    queue.ready_at_ms = ready_at_ms(
        policy,
        oldest_ms=arrivals[0],
        filling_ms=arrivals[-1] if len(arrivals) == policy.blocks_max else None,
        is_heavy=0 < policy.bytes_max < queue.byte_count,
        newest_ms=queue.newest_arrival_ms,
    )
    size = sum(size_bytes for _, size_bytes in front)
    queue.priority_ms = job_priority_ms(
        ready_at_ms=max(queue.ready_at_ms, queue.served_at_ms),
        size_bytes=min(size, policy.bytes_max) if policy.bytes_max else size,
    )


def _queue_ids(keys: list[QueueKey]) -> dict[QueueKey, int]:
    found: dict[QueueKey, int] = {}
    for start in range(0, len(keys), KEYS_PER_QUERY):
        wanted = Q()
        for lane, tenant, shard, level in keys[start : start + KEYS_PER_QUERY]:
            wanted |= Q(lane=lane, tenant=tenant, shard=shard, level=level)
        rows = LevelQueue.objects.filter(wanted).values_list("id", "lane", "tenant", "shard", "level")
        found |= {(lane, tenant, shard, level): id for id, lane, tenant, shard, level in rows}
    return found
