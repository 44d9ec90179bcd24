"""Rebuild the schedule in memory from its rows, read in any order, as a starting process does."""

from __future__ import annotations

import random
from dataclasses import replace

from engine.schedule.model import HOLDING_STATES, JobState
from engine.simulation.memory.command_clock import CommandClock
from engine.simulation.memory.rows import BlockState, MemoryBlock, MemoryJob, MemoryQueue
from engine.simulation.memory.schedule import MemorySchedule


def restarted(schedule: MemorySchedule, draw: random.Random) -> MemorySchedule:
    """Return a copy built from the rows only: every sort order, sum and index is recomputed."""
    old = schedule.clock
    clock = CommandClock(old.wall_ms)
    clock.head_time_ms, clock.head_wall_ms = old.head_time_ms, old.head_wall_ms
    copy = MemorySchedule(
        limits=schedule.limits,
        policies=schedule.policies,
        cleanup_delay_ms=schedule.cleanup_delay_ms,
        clock=clock,
        last_index=schedule.last_index,
    )
    copy.masks, copy.paused, copy.lane = list(schedule.masks), schedule.paused, schedule.lane
    copy.ledger = dict(schedule.ledger)
    _copy_queues(schedule, copy)
    jobs = [job for job in schedule.jobs.values() if job.state in HOLDING_STATES]
    blocks = list(schedule.blocks.values())
    draw.shuffle(jobs)
    draw.shuffle(blocks)
    rows = {block: _copy_block(copy, block) for block in blocks}
    for job in jobs:
        _copy_job(copy, job, rows)
    for queue in copy.queues.by_id.values():
        copy.queues.settle(queue)
    return copy


def _copy_queues(schedule: MemorySchedule, copy: MemorySchedule) -> None:
    book = copy.queues
    for queue in schedule.queues.by_id.values():
        row = MemoryQueue(queue.id, queue.tenant, queue.shard, queue.level, queue.policy, [], 0, queue.served_at_ms)
        book.by_id[queue.id] = book.by_key[queue.tenant, queue.shard, queue.level] = row
    for name, tenant in schedule.queues.tenants.items():
        fresh = book.tenant(name)
        fresh.weight, fresh.running_max = tenant.weight, tenant.running_max
        book.charge(name, tenant.virtual_time)
    book.has_caps = schedule.queues.has_caps


def _copy_block(copy: MemorySchedule, block: MemoryBlock) -> MemoryBlock:
    row = copy.blocks[block.ulid] = replace(block, owner=None, queue=None)
    if block.state is BlockState.QUEUED:
        copy.queues.put(row)
    return row


def _copy_job(copy: MemorySchedule, job: MemoryJob, rows: dict[MemoryBlock, MemoryBlock]) -> None:
    row = replace(job, sources=tuple(rows[block] for block in job.sources), state=JobState.BLOCKED)
    for block in row.sources:
        block.owner = row
    copy.jobs[row.name] = row
    if job.state is JobState.PARKED:
        copy.parked_count += 1
        row.state = JobState.PARKED
        return
    copy.live_job_count += 1
    if job.state is JobState.LEASED:
        copy.restore_lease(row)
    elif job.state is JobState.WAITING:
        copy.move(row, JobState.WAITING)
        copy.queues.line_up(row)
