"""Actions of operators and of the isolation of bad blocks on the schedule in memory; each is one entry of the log.

``ACTIONS`` maps the kind of an entry to the function that replays it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.schedule.isolation import PART_FAILURES_MAX
from engine.schedule.job_names import job_name
from engine.schedule.model import JobState, ParkedKind
from engine.schedule.pauses import PausedScope
from engine.schedule.priority import job_priority_ms
from engine.simulation.memory import removal
from engine.simulation.memory.rows import BlockState, MemoryBlock, MemoryJob
from engine.simulation.memory.schedule import MemorySchedule

Positions = Sequence[int]


def set_paused(schedule: MemorySchedule, paused: Iterable[PausedScope]) -> None:
    """Replace the paused scopes of the schedule."""
    _begin(schedule, "pause", tuple(paused))
    schedule.paused = tuple(paused)


def set_share(schedule: MemorySchedule, tenant: str, weight: int, running_max: int) -> None:
    """Set a tenant's weight and its maximum number of running jobs (0: unlimited)."""
    _begin(schedule, "share", tenant, weight, running_max)
    row = schedule.queues.tenant(tenant)
    row.weight, row.running_max = weight, running_max
    schedule.queues.has_caps = any(each.running_max for each in schedule.queues.tenants.values())


def give_back(schedule: MemorySchedule, name: str) -> None:
    """Dissolve a parked job; its blocks return to their queue."""
    _begin(schedule, "give_back", name)
    job = schedule.jobs[name]
    for block in job.sources:
        block.owner, block.state = None, removal.home_state(block)
        if block.state is BlockState.QUEUED:
            schedule.queues.settle(schedule.queues.put(block))
    schedule.touched_blocks.extend(job.sources)
    removal.end_job(schedule, job)


def split(schedule: MemorySchedule, name: str, parts: Sequence[Positions]) -> list[MemoryJob]:
    """Replace a parked job with one job per part, with the failure limit of parts."""
    _begin(schedule, "split", name, parts)
    parent = schedule.jobs[name]
    children = [_child(schedule, parent, [parent.sources[place] for place in part]) for part in parts]
    removal.end_job(schedule, parent)
    for child in children:
        schedule.jobs[child.name] = child
        schedule.live_job_count += 1
        schedule.counters[child.level].created += 1
        schedule.wait(child)
    schedule.touched_blocks.extend(parent.sources)
    return children


def quarantine(schedule: MemorySchedule, name: str, reason: str) -> None:
    """Quarantine a job's only block. The job is waiting or parked."""
    _begin(schedule, "quarantine", name, reason)
    job = schedule.jobs[name]
    if job.state is not JobState.PARKED:
        schedule.move(job, JobState.PARKED)
        schedule.live_job_count -= 1
        schedule.parked_count += 1
    job.parked_kind, job.parked_reason = ParkedKind.QUARANTINED, reason
    schedule.touch(job)


def _begin(schedule: MemorySchedule, kind: str, *arguments: Any) -> None:
    time = schedule.time()
    schedule.write(kind, *arguments)
    schedule.clock.move(time)


def _child(schedule: MemorySchedule, parent: MemoryJob, part: Sequence[MemoryBlock]) -> MemoryJob:
    size = sum(block.size_bytes for block in part)
    name = job_name((block.ulid for block in part), tenant=parent.tenant, shard=parent.shard, level=parent.level)
    child = MemoryJob(
        schedule.new_job_id(),
        name,
        parent.tenant,
        parent.shard,
        parent.level,
        JobState.BLOCKED,
        tuple(part),
        size,
        parent.added_at_ms,
        parent.ready_at_ms,
        job_priority_ms(ready_at_ms=parent.ready_at_ms, size_bytes=size),
        failures_max=PART_FAILURES_MAX,
        is_rewrite=parent.is_rewrite,
        root=parent.root or parent.id,
        since_index=schedule.last_index,
    )
    for block in part:
        block.owner = child
    return child


ACTIONS: dict[str, Callable[..., object]] = {
    "pause": set_paused,
    "share": set_share,
    "give_back": give_back,
    "split": split,
    "quarantine": quarantine,
    "drop": removal.drop,
    "trim": removal.trim,
    "mask": removal.request_deletion,
    "rewrite": removal.rewrite,
}
