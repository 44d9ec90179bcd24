"""Complete delete requests: remove hidden data from the objects, then issue a certificate.

Ordinary merges do most of it. In addition, blocks or segments of which a request takes everything are dropped; a final
block, which is not merged again, gets a job of its own at once, and so does a queued one that no merge has taken by
half the time to the deadline. Such a job is a merge of one block that stays on its level. Segments with data of other
tenants are left to their first merge; when half the time has passed, parked jobs over segments or blocks of a request
are retried once. The request's page shows what it still waits for. A request is done when no block of the index, live
or waiting for deletion, contains its data.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q, QuerySet

from engine.formats.profile_block.model import DATASET_PROFILES
from engine.lanes.profiles.jobs import KIND, DeleteMask
from engine.schedule.job_names import job_name
from engine.schedule.model import JobState, ParkedKind
from engine.schedule.priority import job_priority_ms
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.masks import concerned, mask_of, read_masks
from webadmin.lanes.profiles.models import (
    Block,
    Dataset,
    DeleteRequest,
    DeleteState,
    DeletionCertificate,
    RemovalCause,
)
from webadmin.lanes.profiles.planning.lane_write import queue_changes
from webadmin.lanes.profiles.services.delete_requests import live_concerned
from webadmin.lanes.profiles.services.remove_blocks import drop_blocks, finish_removal, named, removable, start_removal
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Job
from webadmin.schedule.queries import limits_now
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.operation import Operation, operation
from webadmin.schedule.services.requeue_jobs import requeue

log = logging.getLogger(__name__)

BLOCKS_PER_RUN = 100
"""Maximum number of jobs per run: the data is hidden already, so that new data has precedence."""


@dataclass(slots=True, kw_only=True)
class RewriteReport:
    """Results of a run: blocks dropped whole, jobs created, parked jobs retried, requests done.

    ``late`` requests are past their deadline.
    """

    dropped: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)
    tried_again: list[str] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    late: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the report as commands and API show it."""
        return {
            "dropped": self.dropped,
            "jobs": self.jobs,
            "tried_again": self.tried_again,
            "done": self.done,
            "late": self.late,
        }


def rewrite_masked(*, context: ActionContext) -> RewriteReport:
    """Process every request that is not done; safe to repeat."""
    report = RewriteReport()
    requests = DeleteRequest.objects.filter(state=DeleteState.HIDDEN).select_related("tenant")
    for request in requests.order_by("command_index"):
        now_ms = read_time().now_ms
        held = live_concerned(mask_of(request))
        _drop_whole(request, held, context, report)
        _make_jobs(request, held, context, report, now_ms=now_ms)
        _try_parked(request, held, context, report, now_ms=now_ms)
        if not concerned(mask_of(request)).exists():
            _certify(request, context, report)
        elif now_ms > request.deadline_at_ms:
            report.late.append(request.command_index)
    if report.late:
        log.error("delete_requests_late commands=%s", report.late)
    return report


def _drop_whole(request: DeleteRequest, held: QuerySet[Dataset], context: ActionContext, report: RewriteReport) -> None:
    """Drop the blocks and segments of which requests take everything, including parked and quarantined ones."""
    mask = mask_of(request)
    if not mask.is_total:
        return
    blocks = Block.objects.live().filter(id__in=held.values("block_id"))
    # Other services keep the block, unless this or other requests take them whole.
    others = Dataset.objects.filter(block__in=blocks, format=DATASET_PROFILES)
    for taken in read_masks([mask.tenant]):
        if taken.is_total:
            others = others.exclude(_taken_whole(taken))
    whole = blocks.exclude(id__in=others.values("block_id"))
    ids = list(whole.order_by("id").values_list("id", flat=True)[:BLOCKS_PER_RUN])
    if not ids:
        return
    with operation() as run:
        chosen = removable(ids)
        if chosen:
            removal = start_removal(
                run,
                context,
                RemovalCause.REQUEST,
                "drop_deleted",
                target=mask.tenant,
                detail={"request": mask.index, "dropped": named(chosen)},
            )
            drop_blocks(removal, chosen)
            finish_removal(run, removal)
            report.dropped += removal.dropped


def _taken_whole(mask: DeleteMask) -> Q:
    """Return the condition that a total mask takes a dataset whole."""
    condition = Q(tenant__name=mask.tenant, masks_applied__lt=mask.index)
    return condition & Q(name__name=mask.service) if mask.service else condition


def _make_jobs(
    request: DeleteRequest, held: QuerySet[Dataset], context: ActionContext, report: RewriteReport, *, now_ms: int
) -> None:
    states = [BlockState.FINAL]
    if _is_half_over(request, now_ms):
        states.append(BlockState.QUEUED)
    room = BLOCKS_PER_RUN - len(report.jobs)
    wanted = Block.objects.filter(id__in=held.values("block_id"), level__gt=0, state__in=states)
    ids = list(wanted.order_by("id").values_list("id", flat=True)[: max(0, room)])
    if not ids:
        return
    with operation() as run:
        blocks = list(Block.objects.filter(id__in=ids, state__in=states).select_related("tenant").order_by("id"))
        blocks = blocks[: run.room()]
        if blocks:
            names = {block.id: _job_name(block, request) for block in blocks}
            detail = {
                "request": request.command_index,
                "lane": KIND,
                "rewrites": [{"job": names[block.id], "shard": block.shard, "source": block.ulid} for block in blocks],
            }
            run.write("rewrite_blocks", context, target=request.tenant.name, detail=detail)
            _own(run, blocks, names)
            report.jobs += names.values()


def _try_parked(
    request: DeleteRequest, held: QuerySet[Dataset], context: ActionContext, report: RewriteReport, *, now_ms: int
) -> None:
    """Retry parked jobs over the request's blocks once, except quarantined ones, which would fail again."""
    if not _is_half_over(request, now_ms):
        return
    half_ms = (request.requested_at_ms + request.deadline_at_ms) // 2
    owned = Block.objects.filter(id__in=held.values("block_id"), owner_job__state=JobState.PARKED)
    jobs = Job.objects.filter(id__in=owned.values("owner_job"), lane=KIND).exclude(
        parked_kind=ParkedKind.QUARANTINED.value
    )
    untried = jobs.exclude(attempts__assigned_at_ms__gt=half_ms).order_by("id")
    names = tuple(untried.values_list("name", flat=True)[:BLOCKS_PER_RUN])
    if names:
        outcome = requeue(JobFilter(names=names), context=context)
        report.tried_again += outcome.changed


def _is_half_over(request: DeleteRequest, now_ms: int) -> bool:
    """Return whether half the time from the request to its deadline has passed."""
    return now_ms - request.requested_at_ms > (request.deadline_at_ms - request.requested_at_ms) // 2


def _tenant_name(block: Block) -> str:
    assert block.tenant is not None, "a segment is not rewritten"
    return block.tenant.name


def _job_name(block: Block, request: DeleteRequest) -> str:
    """Return the name of a rewrite job: that of the job over the block alone, and the request."""
    plain = job_name([block.ulid], tenant=_tenant_name(block), shard=block.shard, level=block.level)
    return f"{plain}-D{request.command_index}"


def _own(run: Operation, blocks: Sequence[Block], names: dict[int, str]) -> None:
    """Create a waiting job for each block."""
    memory = limits_now(run.time.now_ms).task_memory_bytes
    jobs = [
        Job(
            name=names[block.id],
            lane=KIND,
            tenant=_tenant_name(block),
            shard=block.shard,
            level=block.level,
            state=JobState.WAITING,
            added_at_ms=run.time.now_ms,
            priority_ms=job_priority_ms(ready_at_ms=run.time.now_ms, size_bytes=block.size_bytes),
            created_command_index=run.index,
            source_count=1,
            source_bytes=block.size_bytes,
            spec={"sources": [block.ulid], "task_memory_bytes": memory, "is_rewrite": True},
        )
        for block in blocks
    ]
    for block, job in zip(blocks, Job.objects.bulk_create(jobs), strict=True):
        if block.queue_id is not None:
            queue_changes(run).add(block.queue_id, -1, -block.size_bytes)
        Block.objects.filter(id=block.id).update(state=BlockState.OWNED, queue=None, owner_job=job)
    run.live_jobs += len(jobs)


def _certify(request: DeleteRequest, context: ActionContext, report: RewriteReport) -> None:
    """Mark a request as done if that is still true while the head is held."""
    with operation() as run:
        held = concerned(mask_of(request)).exists()
        if held or not DeleteRequest.objects.filter(id=request.id, state=DeleteState.HIDDEN).exists():
            return
        detail = {
            "request": request.command_index,
            "hidden_blocks": request.hidden_blocks,
            "hidden_datasets": request.hidden_datasets,
            "is_late": run.time.now_ms > request.deadline_at_ms,
        }
        index = run.write("certify_deletion", context, target=request.tenant.name, detail=detail)
        DeleteRequest.objects.filter(id=request.id).update(state=DeleteState.DONE)
        DeletionCertificate.objects.create(
            request=request, command_index=index, issued_at_ms=run.time.now_ms, detail=detail
        )
    report.done.append(request.command_index)
