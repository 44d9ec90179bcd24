"""Keep the sums of level queues consistent with their blocks, so that polls need not read the blocks.

Code that moves blocks in or out of queues collects the differences and settles them here, last in the transaction and
in sorted order, which prevents deadlocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import models

from engine.lanes.profiles.plan.levels import exceeds_a_job, ready_at_ms
from engine.lanes.profiles.plan.model import LevelPolicy, QueueKey
from engine.schedule.priority import job_priority_ms
from webadmin.base.database.dialect import (
    among,
    as_instance,
    first_rows,
    locked,
    prepared_cursor,
    request_first_rows,
    request_rows,
    update_rows,
)
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies

QUEUED_IN = "queue_id = %s AND state = 'queued'"
"""Condition for the blocks of a queue, matching their partial index."""
KEYED = "lane = %s AND tenant = %s AND shard = %s AND level = %s"
SUMS = (
    *("block_count", "byte_count", "oldest_arrival_ms", "newest_arrival_ms"),
    *("ready_at_ms", "priority_ms", "served_at_ms", "is_marked_ready"),
)
QUEUE_COLUMNS = tuple(field.attname for field in LevelQueue._meta.concrete_fields)
FrontRow = tuple[int, int]
"""Arrival time and size of a block."""


@dataclass(slots=True)
class QueueChanges:
    """Changes of the block and byte counts (negative: blocks left) by queue id.

    ``fresh_ms`` is the arrival time of new blocks in queues that only gained new ones.
    """

    blocks: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    bytes: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    _fresh_ms: dict[int, int] = field(default_factory=dict)
    _moved: set[int] = field(default_factory=set)

    def add(self, queue_id: int, block_count: int, byte_count: int) -> None:
        """Add to the changes of the queue."""
        self._moved.add(queue_id)
        self._count(queue_id, block_count, byte_count)

    def add_fresh(self, queue_id: int, byte_count: int, *, arrived_at_ms: int) -> None:
        """Record a new block in the queue; those of one transaction all arrive at the same time."""
        self._fresh_ms[queue_id] = arrived_at_ms
        self._count(queue_id, 1, byte_count)

    def fresh_ms(self, queue_id: int) -> int | None:
        """Return the arrival time of a queue's new blocks, None if other blocks left or returned to it."""
        return None if queue_id in self._moved else self._fresh_ms.get(queue_id)

    def _count(self, queue_id: int, block_count: int, byte_count: int) -> None:
        self.blocks[queue_id] += block_count
        self.bytes[queue_id] += byte_count


def intern_queues(keys: Iterable[QueueKey]) -> dict[QueueKey, int]:
    """Return the row ids of these queues, creating new ones."""
    return request_queue_ids(keys)()


def request_queue_ids(keys: Iterable[QueueKey]) -> Callable[[], dict[QueueKey, int]]:
    """Query the row ids of these queues; new ones are created when the result is read."""
    wanted = sorted(set(keys))
    pending = _request_queue_ids(wanted)

    def answer() -> dict[QueueKey, int]:
        known = pending()
        if missing := [key for key in wanted if key not in known]:
            rows = [
                LevelQueue(lane=lane, tenant=tenant, shard=shard, level=level) for lane, tenant, shard, level in missing
            ]
            LevelQueue.objects.bulk_create(rows, ignore_conflicts=True)
            known |= _request_queue_ids(missing)()
        return known

    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadState:
    """The oldest blocks that a poll leaves in a queue (arrival, size), and the queue's sums as the poll read them.

    They are valid until the queue is changed, which changes its sums, or until the poll itself adds results to it.
    """

    block_count: int
    byte_count: int
    newest_arrival_ms: int | None
    taken_count: int
    rows: Sequence[FrontRow]

    def is_true_of(self, queue: LevelQueue, change: int) -> bool:
        """Return whether the queue is unchanged except for ``change``, which the poll itself took."""
        sums = (queue.block_count, queue.byte_count, queue.newest_arrival_ms)
        return sums == (self.block_count, self.byte_count, self.newest_arrival_ms) and change == -self.taken_count


def settle_queues(
    changes: QueueChanges,
    policies: LevelPolicies,
    *,
    served_at_ms: int | None = None,
    noticed: Collection[int] = (),
    heads: Mapping[int, HeadState] | None = None,
) -> set[tuple[str, str]]:
    """Update the sums of the changed queues. Call it after the blocks were moved, in the same transaction.

    ``served_at_ms``, ``noticed`` and ``heads`` are for polls, which hold the head: jobs were made of the queues that
    lost blocks, the noticed ones (by id) were found ready, and queues that are no longer ready lose the mark.
    ``heads`` save reading the blocks of queues without concurrent changes. Returns lane and tenant of the queues whose
    mark changed.

    An empty queue is never marked as noticed, or its tenant could become idle while the next blocks of the queue go
    unmarked: neither one that another poll has emptied since this one found it ready, nor one whose last blocks were
    removed.
    """
    queues = _lock_queues({*changes.blocks, *noticed})
    policies.load(queue.tenant for queue in queues)
    if only_marked_ready := [id for id in noticed if id not in changes.blocks]:
        _notice(only_marked_ready)
    turned = {(queue.lane, queue.tenant) for queue in queues if queue.id in noticed}
    changed = [queue for queue in queues if queue.id in changes.blocks]
    known = {
        queue.id: state.rows
        for queue in changed
        if (state := (heads or {}).get(queue.id)) and state.is_true_of(queue, changes.blocks[queue.id])
    }
    for queue in changed:
        queue.block_count += changes.blocks[queue.id]
        queue.byte_count += changes.bytes[queue.id]
        if served_at_ms is not None and changes.blocks[queue.id] < 0:
            queue.served_at_ms = served_at_ms
    grown = {queue.id for queue in changed if _summarise_grown(queue, changes, policies)}
    _summarise([queue for queue in changed if queue.id not in grown], policies, known)
    for queue in changed:
        was_marked_ready, queue.is_marked_ready = queue.is_marked_ready, queue.is_marked_ready or queue.id in noticed
        if served_at_ms is not None and queue.is_marked_ready:
            queue.is_marked_ready = queue.ready_at_ms is not None and queue.ready_at_ms <= served_at_ms
        queue.is_marked_ready &= queue.block_count > 0
        if queue.is_marked_ready != was_marked_ready:
            turned.add((queue.lane, queue.tenant))
    _save(changed)
    return turned


def _lock_queues(ids: Collection[int]) -> list[LevelQueue]:
    """Lock these queues in the order of their row ids and return them."""
    if not ids:
        return []
    wanted, values = among(LevelQueue, "id", sorted(ids))
    rows = request_rows(LevelQueue, QUEUE_COLUMNS, f"WHERE {wanted} ORDER BY id", values, lock=True)()
    return [as_instance(LevelQueue, QUEUE_COLUMNS, row) for row in rows]


def _notice(queue_ids: Sequence[int]) -> None:
    own, values = among(LevelQueue, "id", queue_ids)
    with prepared_cursor() as cursor:
        cursor.execute(f"UPDATE profiles_levelqueue SET is_marked_ready = true WHERE {own} AND block_count > 0", values)  # noqa: S608


def resettle_queues(rows: models.QuerySet[LevelQueue], policies: LevelPolicies) -> int:
    """Recompute the ready times of these queues after a change of their policy; return how many there were."""
    queues = list(locked(rows.filter(block_count__gt=0).order_by("id")))
    policies.load(queue.tenant for queue in queues)
    _summarise(queues, policies, {})
    _save(queues)
    return len(queues)


def _summarise(queues: Sequence[LevelQueue], policies: LevelPolicies, known: Mapping[int, Sequence[FrontRow]]) -> None:
    """Recompute the sums that are not counters; ``known`` are the first blocks of queues that only lost some."""
    own = {queue.id: policies.of(queue.lane, queue.tenant, queue.level) for queue in queues}
    unknown = [queue for queue in queues if queue.id not in known]
    read = _first_blocks([(queue.id, own[queue.id].blocks_max) for queue in unknown])
    newest = _last_arrivals([queue.id for queue in unknown if len(read[queue.id]) < queue.block_count])
    for queue in queues:
        policy = own[queue.id]
        head = (known.get(queue.id) or read.get(queue.id) or ())[: policy.blocks_max]
        newest_ms = queue.newest_arrival_ms if queue.id in known else newest.get(queue.id)
        _summarise_one(queue, policy, head, newest_ms)


def _summarise_grown(queue: LevelQueue, changes: QueueChanges, policies: LevelPolicies) -> bool:
    """Recompute the sums of a queue that only gained new blocks behind all others, without reading its blocks.

    Return False if that is not sufficient. Its other sums are still the previous ones.
    """
    fresh_ms, added = changes.fresh_ms(queue.id), changes.blocks[queue.id]
    policy = policies.of(queue.lane, queue.tenant, queue.level)
    before = queue.block_count - added
    if fresh_ms is None or not (before == 0 or (queue.newest_arrival_ms or 0) < fresh_ms):
        return False
    if queue.block_count <= policy.blocks_max:
        oldest_ms = queue.oldest_arrival_ms if before else None
        first_ms = fresh_ms if oldest_ms is None else oldest_ms
        # Only the first and the last arrival matter, and the sum of the sizes.
        head = [(first_ms, queue.byte_count), *[(fresh_ms, 0)] * (queue.block_count - 1)]
        _summarise_one(queue, policy, head, fresh_ms)
        return True
    # The blocks of the first job are unchanged, and later arrivals do not make it ready earlier.
    if before >= policy.blocks_max:
        queue.newest_arrival_ms = fresh_ms
        return True
    return False


def _summarise_one(queue: LevelQueue, policy: LevelPolicy, head: Sequence[FrontRow], newest_ms: int | None) -> None:
    """Recompute one queue's sums from its first blocks; the last arrival is queried if those are not all."""
    queue.oldest_arrival_ms = queue.newest_arrival_ms = queue.ready_at_ms = queue.priority_ms = None
    if not head:
        return
    arrivals = [arrived_at_ms for arrived_at_ms, _ in head]
    queue.oldest_arrival_ms = arrivals[0]
    queue.newest_arrival_ms = arrivals[-1] if newest_ms is None else newest_ms
    queue.ready_at_ms = ready_at_ms(
        policy,
        oldest_ms=arrivals[0],
        filling_ms=arrivals[-1] if len(arrivals) == policy.blocks_max else None,
        is_heavy=exceeds_a_job(policy, block_count=queue.block_count, byte_count=queue.byte_count),
        newest_ms=queue.newest_arrival_ms,
    )
    size = sum(size_bytes for _, size_bytes in head)
    queue.priority_ms = job_priority_ms(
        ready_at_ms=max(queue.ready_at_ms, queue.served_at_ms),
        size_bytes=min(size, policy.bytes_max) if policy.bytes_max else size,
    )


def _first_blocks(counts: Sequence[tuple[int, int]]) -> dict[int, list[FrontRow]]:
    """Return the first blocks of these queues by queue id, up to the given count for each."""
    columns = ("arrived_at_ms", "ulid", "size_bytes")
    found = first_rows(Block, columns, QUEUED_IN, "arrived_at_ms, ulid", [((id,), count) for id, count in counts])
    return {
        id: [(arrived_at_ms, size_bytes) for arrived_at_ms, _, size_bytes in sorted(rows)]
        for (id, _), rows in zip(counts, found, strict=True)
    }


def _last_arrivals(queue_ids: Sequence[int]) -> dict[int, int]:
    order = "arrived_at_ms DESC, ulid DESC"
    found = first_rows(Block, ("arrived_at_ms",), QUEUED_IN, order, [((id,), 1) for id in queue_ids])
    return {id: rows[0][0] for id, rows in zip(queue_ids, found, strict=True)}


def _save(queues: Sequence[LevelQueue]) -> None:
    rows = [(queue.id, *(getattr(queue, column) for column in SUMS)) for queue in queues]
    update_rows(LevelQueue, ("id",), SUMS, rows)


def _request_queue_ids(keys: list[QueueKey]) -> Callable[[], dict[QueueKey, int]]:
    found = request_first_rows(LevelQueue, ("id",), KEYED, "id", [(key, 1) for key in keys])
    return lambda: {key: rows[0][0] for key, rows in zip(keys, found(), strict=True) if rows}
