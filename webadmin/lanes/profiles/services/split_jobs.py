"""Replace a parked job by smaller ones over the same blocks, which wait for workers with few attempts each."""

from __future__ import annotations

from collections.abc import Sequence

from engine.schedule.isolation import PART_FAILURES_MAX
from engine.schedule.job_names import job_name
from engine.schedule.limits import LimitName, ScopeKind
from engine.schedule.model import JobState
from engine.schedule.priority import job_priority_ms
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import JobSplit, LimitChange
from webadmin.schedule.services.operation import Operation
from webadmin.schedule.services.return_job_blocks import dissolve

BAD_PART = "part of a job that failed too often"


def split_job(run: Operation, job: Job, parts: Sequence[Sequence[Block]], context: ActionContext) -> list[Job]:
    """Create a waiting job for each part, in an operation that has written its entry, and end ``job``.

    Raises StaleSnapshot unless the parts are all the blocks of the job and it is still parked.
    """
    split = getattr(job, "split_from", None)
    root_id = split.root_id if split else job.id
    children = Job.objects.bulk_create([_child(run, job, part) for part in parts])
    moved = sum(
        Block.objects.filter(id__in=[block.id for block in part], owner_job=job, state=BlockState.OWNED).update(
            owner_job=child
        )
        for child, part in zip(children, parts, strict=True)
    )
    if (
        moved != sum(len(part) for part in parts)
        or Block.objects.filter(owner_job=job, state=BlockState.OWNED).exists()
    ):
        raise StaleSnapshot(f"the blocks of job {job.name} have changed")
    JobSplit.objects.bulk_create(
        JobSplit(child=child, parent=job, root_id=root_id, command_index=run.index, at_ms=run.time.now_ms)
        for child in children
    )
    LimitChange.objects.bulk_create(_failure_limit(run, child, context) for child in children)
    dissolve(run, [job])
    run.live_jobs += len(children)
    return children


def _child(run: Operation, job: Job, part: Sequence[Block]) -> Job:
    sources = [block.ulid for block in part]
    size = sum(block.size_bytes for block in part)
    return Job(
        name=job_name(sources, tenant=job.tenant, shard=job.shard, level=job.level),
        lane=job.lane,
        tenant=job.tenant,
        shard=job.shard,
        level=job.level,
        state=JobState.WAITING,
        added_at_ms=job.added_at_ms,
        priority_ms=job_priority_ms(ready_at_ms=job.added_at_ms, size_bytes=size),
        created_command_index=run.index,
        source_count=len(part),
        source_bytes=size,
        spec=job.spec | {"sources": sources},
    )


def _failure_limit(run: Operation, child: Job, context: ActionContext) -> LimitChange:
    return LimitChange(
        name=LimitName.FAILURES_MAX,
        scope_kind=ScopeKind.JOB,
        scope_value=child.name,
        value=PART_FAILURES_MAX,
        set_at_ms=run.time.now_ms,
        command_index=run.index,
        actor=context.actor,
        why=BAD_PART,
    )
