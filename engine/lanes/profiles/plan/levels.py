"""Plan jobs by level: group the queued blocks of one tenant, shard and level into jobs.

Blocks are taken in arrival order. A job closes when it has as many blocks as the level policy allows, when the next
block would make it too large, or when the next block was created too far from the others. Remaining blocks become a
job when the oldest has waited longer than the policy's age. Invariants:

1. The blocks of a job share tenant, shard and level. There are at most ``blocks_max``, created within ``spread_ms``.
2. Planning is deterministic: equal blocks at an equal time give equal jobs, names and order; ties are broken by id.
3. Every block that has waited longer than the age is in a job, whether or not others arrive.
4. If the policy allows it, partial batches of other shards join a partial batch
   (``engine.lanes.profiles.plan.consolidation``). The job gets the shard of its newest source and keeps all other
   bounds of 1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence

from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy, PlannedJob, QueuedBlock, QueuePart
from engine.schedule.job_names import job_name


def plan_jobs(queues: Iterable[BlockQueue], *, now_ms: int, count_max: int) -> list[PlannedJob]:
    """Return up to ``count_max`` jobs: lowest level first, then longest ready first."""
    ready = (job for queue in queues for job in cut_queue(queue, now_ms=now_ms))
    return heapq.nsmallest(max(0, count_max), ready, key=_order)


def cut_queue(queue: BlockQueue, *, now_ms: int) -> Iterator[PlannedJob]:
    """Yield the jobs that can be planned from a queue at ``now_ms``, in arrival order; they share no block."""
    for blocks, closed_at_ms in _cuts(queue, now_ms):
        aged_at_ms = blocks[0].arrived_at_ms + queue.policy.age_ms + 1
        ready_at_ms = aged_at_ms if closed_at_ms is None else min(closed_at_ms, aged_at_ms)
        yield _planned(queue, blocks, ready_at_ms, queue.joining if closed_at_ms is None else ())


def due_partial_batch(queue: BlockQueue, *, now_ms: int) -> tuple[QueuedBlock, ...]:
    """Return the blocks that are due only by age; empty if there are none."""
    return next((blocks for blocks, closed_at_ms in _cuts(queue, now_ms) if closed_at_ms is None), ())


def _cuts(queue: BlockQueue, now_ms: int) -> Iterator[tuple[tuple[QueuedBlock, ...], int | None]]:
    """Yield the blocks of each job with the arrival that closed it, None for a partial batch that is due by age."""
    policy, position = queue.policy, 0
    while position < len(queue.blocks):
        blocks, closed_at_ms = _take(queue.blocks, position, policy)
        aged_at_ms = blocks[0].arrived_at_ms + policy.age_ms + 1
        # The last blocks of a partially read queue may belong to a job with blocks that were not read.
        if closed_at_ms is None and (not queue.is_whole or now_ms < aged_at_ms):
            return
        yield blocks, closed_at_ms
        position += len(blocks)


def exceeds_a_job(policy: LevelPolicy, *, block_count: int, byte_count: int) -> bool:
    """Return whether the blocks exceed a job's bytes; a single block of any size waits for its age."""
    return block_count > 1 and 0 < policy.bytes_max < byte_count


def ready_at_ms(policy: LevelPolicy, *, oldest_ms: int, filling_ms: int | None, is_heavy: bool, newest_ms: int) -> int:
    """Return the time at which a job can be planned from a queue, past or future.

    ``oldest_ms`` and ``newest_ms`` are its first and last arrivals, ``filling_ms`` the arrival of the block that
    completes a job (None: fewer blocks wait). ``is_heavy``: its blocks exceed a job's bytes.
    """
    ready_ms = oldest_ms + policy.age_ms + 1
    if filling_ms is not None and filling_ms < ready_ms:
        ready_ms = filling_ms
    if is_heavy and newest_ms < ready_ms:
        ready_ms = newest_ms
    return ready_ms


def _take(blocks: Sequence[QueuedBlock], start: int, policy: LevelPolicy) -> tuple[tuple[QueuedBlock, ...], int | None]:
    """Return the blocks of the next job and the arrival that closed it, None if the queue ended first."""
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
