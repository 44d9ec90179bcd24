"""Plans jobs by level: which queued blocks of one tenant, shard and level are merged together, and in which order.

A queue's blocks are taken in arrival order. A job closes when it has as many blocks as its level's policy allows, when
the next block would make it too large, or when the next block was created too far from the others. What is left over
makes a job only when its oldest block has waited longer than the policy's age. So:

1. Blocks of a job share tenant, shard and level, are at most ``blocks_max``, and their creation spreads at most
   ``spread_ms``.
2. The same blocks at the same time give the same jobs, names and order: equal arrival times are ordered by id.
3. Every block that has waited longer than the age is in a job, whether or not others arrive.
4. A remnant is joined by remnants of other shards where the policy says so
(``engine.lanes.profiles.plan.consolidation``); such a
   job bears the shard of its newest source. It keeps the bounds of 1 but for the shard.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, PlannedJob, QueuedBlock, QueuePart
from engine.schedule.job_names import job_name


def plan_jobs(queues: Iterable[BlockQueue], *, now_ms: int, count_max: int) -> list[PlannedJob]:
    """Return up to ``count_max`` jobs: low levels first, then those that could have been merged longest."""
    ready = (job for queue in queues for job in cut_queue(queue, now_ms=now_ms))
    return heapq.nsmallest(max(0, count_max), ready, key=_order)


def cut_queue(queue: BlockQueue, *, now_ms: int) -> Iterator[PlannedJob]:
    """Yield the jobs that can be made of a queue now, in arrival order; they share no block."""
    for blocks, closed_at_ms in _cuts(queue, now_ms):
        aged_at_ms = blocks[0].arrived_at_ms + queue.policy.age_ms + 1
        ready_at_ms = aged_at_ms if closed_at_ms is None else min(closed_at_ms, aged_at_ms)
        yield _planned(queue, blocks, ready_at_ms, queue.joining if closed_at_ms is None else ())


def due_remnant(queue: BlockQueue, *, now_ms: int) -> tuple[QueuedBlock, ...]:
    """Return the blocks that make a job only because of their age; none if there are none or they are young."""
    return next((blocks for blocks, closed_at_ms in _cuts(queue, now_ms) if closed_at_ms is None), ())


def _cuts(queue: BlockQueue, now_ms: int) -> Iterator[tuple[tuple[QueuedBlock, ...], int | None]]:
    """Yield the blocks of each job with the arrival that closed it, None for a remnant that is old enough."""
    policy, position = queue.policy, 0
    while position < len(queue.blocks):
        blocks, closed_at_ms = _take(queue.blocks, position, policy)
        aged_at_ms = blocks[0].arrived_at_ms + policy.age_ms + 1
        # Of a queue that was not read to its end, the last blocks may belong with others that were not read.
        if closed_at_ms is None and (not queue.is_whole or now_ms < aged_at_ms):
            return
        yield blocks, closed_at_ms
        position += len(blocks)


def exceeds_a_job(policy: LevelPolicy, *, block_count: int, byte_count: int) -> bool:
    """Tell whether the blocks of a queue exceed a job's bytes; one alone, however large, waits for its age."""
    return block_count > 1 and 0 < policy.bytes_max < byte_count


def ready_at_ms(policy: LevelPolicy, *, oldest_ms: int, filling_ms: int | None, is_heavy: bool, newest_ms: int) -> int:
    """Return since or from when a queue is worth a look.

    ``oldest_ms`` and ``newest_ms`` are its first and last arrivals, ``filling_ms`` the arrival of the block that fills
    a job (None: fewer blocks wait), ``is_heavy`` says that its blocks exceed a job's bytes.
    """
    ready_ms = oldest_ms + policy.age_ms + 1
    if filling_ms is not None and filling_ms < ready_ms:
        ready_ms = filling_ms
    if is_heavy and newest_ms < ready_ms:
        ready_ms = newest_ms
    return ready_ms


def _take(blocks: Sequence[QueuedBlock], start: int, policy: LevelPolicy) -> tuple[tuple[QueuedBlock, ...], int | None]:
    """Return the blocks of the next job and the arrival that closed it, None if the queue ran out first."""
    earliest = latest = blocks[start].created_at_ms
    size = 0
    for position in range(start, len(blocks)):
        block = blocks[position]
        taken = position - start
        is_far = block.created_at_ms > earliest + policy.spread_ms or block.created_at_ms < latest - policy.spread_ms
        is_heavy = 0 < policy.bytes_max < size + block.size_bytes
        if taken and (is_far or is_heavy):
            return tuple(blocks[start:position]), block.arrived_at_ms
        earliest, latest = min(earliest, block.created_at_ms), max(latest, block.created_at_ms)
        size += block.size_bytes
        if taken + 1 == policy.blocks_max:
            return tuple(blocks[start : position + 1]), block.arrived_at_ms
    return tuple(blocks[start:]), None


def _planned(
    queue: BlockQueue, blocks: tuple[QueuedBlock, ...], ready_at_ms: int, joining: tuple[QueuePart, ...]
) -> PlannedJob:
    shard = queue.shard
    parts: tuple[QueuePart, ...] = ()
    if joining:
        parts = (QueuePart(queue_id=queue.id, shard=queue.shard, blocks=blocks), *joining)
        blocks = tuple(block for part in parts for block in part.blocks)
        shard = max((block.created_at_ms, block.ulid, part.shard) for part in parts for block in part.blocks)[2]
    return PlannedJob(
        name=job_name((block.ulid for block in blocks), tenant=queue.tenant, shard=shard, level=queue.level),
        queue_id=queue.id,
        lane=queue.lane,
        tenant=queue.tenant,
        shard=shard,
        level=queue.level,
        blocks=blocks,
        ready_at_ms=ready_at_ms,
        parts=parts,
    )


def _order(job: PlannedJob) -> tuple[int, int, str, str]:
    return (job.level, job.ready_at_ms, job.blocks[-1].ulid, job.name)
