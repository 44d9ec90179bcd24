"""Remove data from the schedule in memory, as the index does: by retention, delete requests and rewrites.

The shipped ``engine.lanes.profiles.plan.retention`` decides what retention removes. Sources of a leased job are kept
until the lease has ended. Times are wall-clock times, like those of the data.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.plan.retention import RetentionPlan, RetentionPolicy, RetentionSlice, plan_retention
from engine.schedule.job_names import job_name
from engine.schedule.model import LIVE_STATES, JobState
from engine.schedule.priority import job_priority_ms
from engine.simulation.memory.results import is_about, is_masked
from engine.simulation.memory.rows import (
    FINAL_LEVEL,
    LIVE_BLOCKS,
    BlockState,
    MemoryBlock,
    MemoryJob,
    MemoryQueue,
    Removal,
)
from engine.simulation.memory.schedule import MemorySchedule

PARTITION_MS = 30_000
GRACE_MS = 10_000
"""Grace period; simulated histories last minutes, so it is seconds instead of hours."""
REWRITES_PER_RUN = 4


def retention_slices(schedule: MemorySchedule) -> Iterator[RetentionSlice]:
    """Yield the slices: the data of each tenant in each partition and shard."""
    newest: dict[tuple[int, str, int, bool], int] = {}
    for block in schedule.blocks.values():
        if block.state in LIVE_BLOCKS:
            for tenant in {share.tenant for share in block.shares}:
                key = (partition_ms(block), tenant, block.shard, block.tenant == "")
                newest[key] = max(newest.get(key, 0), block.max_time_ms)
    for (start_ms, tenant, shard, in_segments), max_time_ms in newest.items():
        yield RetentionSlice(
            partition_start_ms=start_ms,
            partition_ms=PARTITION_MS,
            tenant=tenant,
            shard=shard,
            max_time_ms=max_time_ms,
            in_segments=in_segments,
        )


def plan(schedule: MemorySchedule, policy: RetentionPolicy, *, waits_for_grace: bool = True) -> RetentionPlan:
    """Return the slices to drop. ``waits_for_grace`` False violates the rule, to test the checks."""
    now_ms, slices = schedule.clock.wall_ms, list(retention_slices(schedule))
    if waits_for_grace:
        return plan_retention(slices, policy, now_ms=now_ms)
    markers = {part: policy.marker_ms(part.tenant, now_ms) for part in slices}
    return RetentionPlan(
        expired=tuple(part for part, marker in markers.items() if marker and part.partition_start_ms < marker)
    )


def drop_part(schedule: MemorySchedule, part: RetentionSlice) -> int:
    """Drop the blocks of a slice, or its tenant's data in segments; return the number of changed blocks."""
    chosen = [block for block in _removable(schedule) if _is_of(block, part)]
    if not chosen:
        return 0
    ulids = tuple(block.ulid for block in chosen)
    if part.in_segments:
        trim(schedule, part.tenant, ulids)
    else:
        drop(schedule, ulids)
    return len(chosen)


def drop(schedule: MemorySchedule, ulids: Sequence[str]) -> None:
    """Remove blocks that are not leased from the index."""
    time = schedule.time()
    schedule.write("drop", tuple(ulids))
    schedule.clock.move(time)
    _drop([schedule.blocks[ulid] for ulid in ulids], schedule, time.now_ms)


def trim(schedule: MemorySchedule, tenant: str, ulids: Sequence[str]) -> None:
    """Remove a tenant's data from segments that are not leased; a segment is dropped with its last tenant."""
    time = schedule.time()
    schedule.write("trim", tenant, tuple(ulids))
    schedule.clock.move(time)
    empty = []
    for segment in [schedule.blocks[ulid] for ulid in ulids]:
        gone = tuple(share for share in segment.shares if share.tenant == tenant)
        if len(gone) == len(segment.shares):
            empty.append(segment)
            continue
        segment.shares = tuple(share for share in segment.shares if share.tenant != tenant)
        schedule.removals.append(Removal(segment, gone, is_trim=True))
        schedule.touched_blocks.append(segment)
    _drop(empty, schedule, time.now_ms)


def request_deletion(schedule: MemorySchedule, tenant: str, service: str) -> DeleteMask:
    """Hide a tenant's data accepted so far, of one service or ("") all."""
    time = schedule.time()
    index = schedule.write("mask", tenant, service)
    schedule.clock.move(time)
    mask = DeleteMask(index=index, tenant=tenant, service=service)
    schedule.masks.append(mask)
    return mask


def rewrite_masked(schedule: MemorySchedule, mask: DeleteMask) -> int:
    """Drop blocks that requests hide completely, and plan rewrites of others; return the number of changed blocks."""
    held = [block for block in _removable(schedule) if block.level > 0 and is_about(mask, block)]
    whole = [block for block in held if all(is_masked(schedule.masks, block, share) for share in block.shares)]
    if whole:
        drop(schedule, [block.ulid for block in whole])
    left = [block for block in held if block not in whole and block.state in (BlockState.FINAL, BlockState.QUEUED)]
    limit = schedule.limits.queue_max
    room = REWRITES_PER_RUN if limit == 0 else min(REWRITES_PER_RUN, max(0, limit - schedule.live_job_count))
    if left[:room]:
        rewrite(schedule, mask.index, [block.ulid for block in left[:room]])
    return len(whole) + len(left[:room])


def rewrite(schedule: MemorySchedule, request: int, ulids: Sequence[str]) -> None:
    """Create a rewrite job for each block; its result stays on the block's level."""
    time = schedule.time()
    schedule.write("rewrite", request, tuple(ulids))
    schedule.clock.move(time)
    for block in [schedule.blocks[ulid] for ulid in ulids]:
        name = job_name([block.ulid], tenant=block.tenant, shard=block.shard, level=block.level)
        job = MemoryJob(
            schedule.new_job_id(),
            f"{name}-D{request}",
            block.tenant,
            block.shard,
            block.level,
            JobState.BLOCKED,
            (block,),
            block.size_bytes,
            time.now_ms,
            time.now_ms,
            job_priority_ms(ready_at_ms=time.now_ms, size_bytes=block.size_bytes),
            is_rewrite=True,
            since_index=schedule.last_index,
        )
        _leave_queue(schedule, block)
        block.state, block.owner = BlockState.OWNED, job
        schedule.touched_blocks.append(block)
        schedule.jobs[job.name] = job
        schedule.live_job_count += 1
        schedule.counters[job.level].created += 1
        schedule.wait(job)


def partition_ms(block: MemoryBlock) -> int:
    """Return the start of a block's partition, by its creation time."""
    return block.view.created_at_ms // PARTITION_MS * PARTITION_MS


def _is_of(block: MemoryBlock, part: RetentionSlice) -> bool:
    is_place = (partition_ms(block), block.shard, block.tenant == "") == (
        part.partition_start_ms,
        part.shard,
        part.in_segments,
    )
    return is_place and any(share.tenant == part.tenant for share in block.shares)


def _removable(schedule: MemorySchedule) -> list[MemoryBlock]:
    """Return the live blocks that are not sources of a leased job."""
    live = (block for block in schedule.blocks.values() if block.state in LIVE_BLOCKS)
    return [block for block in live if block.owner is None or block.owner.state is not JobState.LEASED]


def _drop(blocks: Iterable[MemoryBlock], schedule: MemorySchedule, now_ms: int) -> None:
    shrunk: dict[MemoryJob, set[MemoryBlock]] = {}
    for block in blocks:
        if block.owner is not None:
            shrunk.setdefault(block.owner, set()).add(block)
        _leave_queue(schedule, block)
        block.state, block.owner = BlockState.DROPPED, None
        schedule.add_tombstone(block, now_ms)
        schedule.removals.append(Removal(block, block.shares))
        schedule.touched_blocks.append(block)
    for job, lost in shrunk.items():
        _shrink(schedule, job, lost)


def _leave_queue(schedule: MemorySchedule, block: MemoryBlock) -> None:
    queue: MemoryQueue | None = block.queue
    if queue is not None:
        schedule.queues.take(queue, [block])
        schedule.queues.settle(queue)


def _shrink(schedule: MemorySchedule, job: MemoryJob, lost: Collection[MemoryBlock]) -> None:
    """Remove dropped sources from a waiting or parked job; without sources the job ends."""
    job.sources = tuple(block for block in job.sources if block not in lost)
    job.size_bytes -= sum(block.size_bytes for block in lost)
    schedule.touch(job)
    if not job.sources:
        end_job(schedule, job)


def end_job(schedule: MemorySchedule, job: MemoryJob) -> None:
    """Dissolve a job without blocks."""
    schedule.live_job_count -= job.state in LIVE_STATES
    schedule.parked_count -= job.state is JobState.PARKED
    schedule.counters[job.level].dissolved += 1
    schedule.move(job, JobState.DISSOLVED)
    del schedule.jobs[job.name]


def home_state(block: MemoryBlock) -> BlockState:
    """Return the state of a live block without a job."""
    return BlockState.FINAL if block.level >= FINAL_LEVEL else BlockState.QUEUED
