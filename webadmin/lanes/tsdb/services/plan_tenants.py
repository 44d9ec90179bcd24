"""Plan tenants of buckets: create groups and their jobs, one command of the log per batch.

The input of the plan is verified again under the lock: if a block is no longer free, the batch ends and the tenant is
planned again. Concurrent plans of one tenant create each group once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import F

from engine.lanes.tsdb.buckets.visits import fresh_foreign_markers
from engine.lanes.tsdb.jobs import KIND
from engine.lanes.tsdb.plan.model import GroupPartition, IntervalGroup, IntervalPlan, SlotState, VisitMark
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.schedule.errors import PolicyRefused
from engine.schedule.limits import LimitName
from engine.schedule.model import LIVE_STATES, JobState
from engine.schedule.priority import job_priority_ms
from engine.storage import ObjectStore, StorageError
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.backoff import again_at_ms
from webadmin.lanes.tsdb.models import REASON_MAX, Block, BucketTenant, Group, OutboxStep, Part
from webadmin.lanes.tsdb.planning_view import partial_uploads, read_blocks, read_taken
from webadmin.lanes.tsdb.policies import allows_partitions, layout_of, policy_of
from webadmin.lanes.tsdb.services.scan_buckets import end_groups
from webadmin.lanes.tsdb.services.withdraw_groups import withdraw_cut_groups
from webadmin.lanes.tsdb.states import PLANNABLE, BlockState, GroupState, StepKind
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.models import Job
from webadmin.schedule.polls.fair_shares import intern_shares
from webadmin.schedule.queries import effective_limits, limits_now
from webadmin.schedule.rounds import error_text
from webadmin.schedule.services.operation import JOBS_PER_COMMAND, Operation, operation

log = logging.getLogger(__name__)

ACTOR = "control:intervals"
PLAN_AGAIN_MS = 10_000
"""Delay until a tenant with more groups than the queue had room for is planned again."""
REFUSED_AGAIN_MS = 60_000
LEVEL_MAX = 32_767


@dataclass(slots=True)
class PlanReport:
    """Result of a round of planning: names of the jobs created, and refused tenants with the reasons."""

    jobs: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def plan_tenant(tenant: BucketTenant, store: ObjectStore, *, context: ActionContext | None = None) -> PlanReport:
    """Plan one tenant from its recorded blocks, and create as many jobs as there is room for."""
    context = context or ActionContext(actor=ACTOR, why="blocks of an interval")
    now_ms = dialect.clock_ms()
    report = PlanReport()
    if not context.is_dry_run:
        _give_up_cut_groups(tenant)  # also if nothing new is planned: the jobs would complete regardless
    if why := _standing_refusal(tenant):
        _note(tenant, IntervalPlan(tenant=tenant.name, refusal=why), now_ms, again_ms=now_ms + REFUSED_AGAIN_MS)
        report.refused[tenant.name] = why
        return report
    plan = _plan(tenant, store, now_ms)
    if plan.refusal:
        report.refused[tenant.name] = plan.refusal
    if not context.is_dry_run:
        report.duplicates = _mark_duplicates(plan, tenant, now_ms)
        is_all = _make_groups(plan.groups, tenant, now_ms, context, report)
        _note(tenant, plan, now_ms, again_ms=plan.recheck_ms if is_all else now_ms + PLAN_AGAIN_MS)
    else:
        report.jobs = [group.job_name(part) for group in plan.groups for part in group.group_partitions()]
    return report


def _give_up_cut_groups(tenant: BucketTenant) -> None:
    """Dissolve or withdraw split groups in a bucket that no longer allows partitions.

    Affects open groups, and done groups that are not published yet: readers would treat their results as duplicates.
    """
    if allows_partitions(tenant.bucket):
        return
    why = "the bucket does not allow parts of a group"
    if cut := list(Group.objects.filter(tenant=tenant, state=GroupState.OPEN, partitions__gt=1)):
        end_groups(cut, why)
    withdraw_cut_groups(tenant, context=ActionContext(actor=ACTOR, why=why))


def note_failure(tenant: BucketTenant, error: Exception) -> str:
    """Record that planning a tenant failed and back off; return the reason why it is not planned."""
    failures = tenant.failures + 1
    why = f"its plan broke off: {error_text(error)}"[:REASON_MAX]
    at_ms = again_at_ms(dialect.clock_ms(), failures)
    BucketTenant.objects.filter(id=tenant.id).update(
        failures=failures, refusal=why, refused_until_ms=at_ms, plan_at_ms=at_ms
    )
    return why


def due_tenants(now_ms: int, count: int) -> list[BucketTenant]:
    """Return tenants whose plan is due, the longest overdue first."""
    due = BucketTenant.objects.filter(plan_at_ms__lte=now_ms, folder__scanned_at_ms__isnull=False)
    related = due.select_related("bucket", "folder").defer("folder__examined", "slots")
    return list(related.order_by("plan_at_ms", "id")[:count])


def _standing_refusal(tenant: BucketTenant) -> str:
    if tenant.bucket.is_paused:
        return "the bucket is paused"
    if tenant.is_deleted:
        return "its owner has marked the tenant for deletion"
    try:
        policy_of(tenant.bucket)
    except PolicyRefused as error:
        return str(error)
    return ""


def _plan(tenant: BucketTenant, store: ObjectStore, now_ms: int) -> IntervalPlan:
    """Return the plan; list the bucket for a foreign compactor only if there is something to do."""
    blocks, taken = read_blocks(tenant), read_taken(tenant)
    partial = partial_uploads(tenant.folder_id)
    policy = policy_of(tenant.bucket)

    def plan(visits: Iterable[VisitMark] = ()) -> IntervalPlan:
        return plan_intervals(tenant.name, blocks, policy, now_ms=now_ms, taken=taken, partial=partial, visits=visits)

    planned = plan()
    if not planned.groups and not planned.duplicates:
        return planned
    # Of all blocks: a compactor that merges one of them may be about to merge this installation's blocks too.
    ulids = {block.ulid for block in blocks}
    try:
        found = fresh_foreign_markers(store, layout_of(tenant.bucket), tenant.folder.name, ulids, now_s=now_ms / 1000)
    except StorageError as error:
        why = f"the bucket did not say whether another compactor is at work: {error}"
        return IntervalPlan(tenant=tenant.name, refusal=why, recheck_ms=now_ms + REFUSED_AGAIN_MS)
    visits = [
        VisitMark(
            place=visit.key,
            visitor=visit.compactor or "one whose mark cannot be read",
            visited_at_ms=round(visit.visited_at_s * 1000),
        )
        for visit in found
    ]
    return plan(visits) if visits else planned


def _mark_duplicates(plan: IntervalPlan, tenant: BucketTenant, now_ms: int) -> list[str]:
    """Mark blocks whose data other blocks hold as superseded."""
    marked = []
    for duplicate in plan.duplicates:
        reason = f"all it holds is in {', '.join(duplicate.covered_by)}"[:REASON_MAX]
        with transaction.atomic():
            free = Block.objects.filter(tenant=tenant, ulid=duplicate.block.ulid, state=BlockState.LIVE)
            block = free.first()
            if block is None or not free.update(state=BlockState.SUPERSEDED, reason=reason):
                continue
            OutboxStep.objects.create(
                tenant=tenant,
                block=block,
                kind=StepKind.MARK_DELETION,
                detail=reason,
                covered_by=list(duplicate.covered_by),
                created_at_ms=now_ms,
            )
            BucketTenant.objects.filter(id=tenant.id).update(index_wanted=F("index_wanted") + 1)
        marked.append(duplicate.block.ulid)
    return marked


def _make_groups(
    groups: Sequence[IntervalGroup], tenant: BucketTenant, now_ms: int, context: ActionContext, report: PlanReport
) -> bool:
    """Create groups and their jobs in batches; return whether there was room for all."""
    left = list(groups)
    if left:
        intern_shares([(KIND, tenant.name)])
    while left:
        try:
            with operation() as run:
                batch = _batch(left, min(_room(run), JOBS_PER_COMMAND))
                if not batch:
                    return False
                report.jobs += _create(run, batch, tenant, now_ms, context)
        except (StaleSnapshot, IntegrityError) as error:  # a concurrent plan of the same tenant
            log.info("intervals_planned_again tenant=%s reason=%s", tenant.name, error)
            return False
        left = left[len(batch) :]
    return True


def _room(run: Operation) -> int:
    """Return the number of jobs of this lane that still fit on the schedule."""
    own = effective_limits(run.time.now_ms).value(LimitName.QUEUE_MAX, 0, lane=KIND)
    if own == limits_now(run.time.now_ms).queue_max or not own:
        return run.room()
    live = Job.objects.filter(lane=KIND, state__in=[state.value for state in LIVE_STATES]).count()
    return max(0, min(run.room(), own - live))


def _batch(groups: Sequence[IntervalGroup], room: int) -> list[IntervalGroup]:
    """Return the first groups whose jobs fit; a group larger than a command goes alone if there is any room."""
    batch: list[IntervalGroup] = []
    count = 0
    for group in groups:
        count += len(group.group_partitions())
        if count > room and (batch or room <= 0):
            break
        batch.append(group)
    return batch


def _create(
    run: Operation, groups: Sequence[IntervalGroup], tenant: BucketTenant, now_ms: int, context: ActionContext
) -> list[str]:
    """Create these groups with their jobs in one command; return the jobs' names."""
    entries = [_entry(group, part, tenant) for group in groups for part in group.group_partitions()]
    names = [str(entry["job"]) for entry in entries]
    run.write(
        "plan_intervals",
        context,
        target=f"{tenant.bucket.name}/{tenant.name}",
        detail={"jobs": names, "bucket": tenant.bucket.name, "created": entries},
    )
    rows = Group.objects.bulk_create(
        Group(tenant=tenant, created_at_ms=now_ms, command_index=run.index, **_group_columns(group)) for group in groups
    )
    _take_blocks(groups, rows, tenant)
    parts = [(group, part, row) for group, row in zip(groups, rows, strict=True) for part in group.group_partitions()]
    memory = limits_now(run.time.now_ms).task_memory_bytes
    # Among jobs of equal size, the order of the plan decides.
    jobs = [
        _job(group, part, row, tenant, memory=memory, index=run.index, at_ms=run.time.now_ms, position=position)
        for position, (group, part, row) in enumerate(parts)
    ]
    Job.objects.bulk_create(jobs)
    Part.objects.bulk_create(
        Part(group=row, partition=part.partition, job=job) for (_, part, row), job in zip(parts, jobs, strict=True)
    )
    run.live_jobs += len(jobs)
    return names


def _entry(group: IntervalGroup, part: GroupPartition, tenant: BucketTenant) -> dict[str, Any]:
    """Return the log entry of a job."""
    return {
        "job": _name(group, part, tenant),
        "lane": KIND,
        "tenant": tenant.name,
        "shard": 0,
        "level": _job_level(group),
        "sources": [block.ulid for block in part.blocks],
        "group": f"{tenant.bucket.name}/{tenant.name}/{group.group_key}/{group.range_ms}/{group.start_ms}",
        "is_assigned": False,
    }


def _take_blocks(groups: Sequence[IntervalGroup], rows: Sequence[Group], tenant: BucketTenant) -> None:
    """Assign the blocks to their groups. Raises StaleSnapshot unless all of them are free."""
    ulids = {block.ulid: row.id for group, row in zip(groups, rows, strict=True) for block in group.blocks}
    free = Block.objects.filter(
        tenant=tenant, state=BlockState.LIVE, visible_at_ms__isnull=False, quarantined="", no_compact=""
    )
    ids = dict(free.filter(ulid__in=list(ulids)).values_list("ulid", "id"))
    taken = [(ids[ulid], group_id) for ulid, group_id in ulids.items() if ulid in ids]
    owned, live = {"state": BlockState.OWNED.value}, {"state": BlockState.LIVE.value}
    if dialect.update_rows(Block, ("id",), ("group_id",), taken, to=owned, where=live) != len(ulids):
        raise StaleSnapshot("some blocks of a planned group are not free any more")


def _job(
    group: IntervalGroup,
    part: GroupPartition,
    row: Group,
    tenant: BucketTenant,
    *,
    memory: int,
    index: int,
    at_ms: int,
    position: int,
) -> Job:
    size = sum(block.size_bytes for block in part.blocks)
    return Job(
        name=_name(group, part, tenant),
        lane=KIND,
        tenant=tenant.name,
        shard=0,
        level=_job_level(group),
        state=JobState.WAITING,
        added_at_ms=at_ms,
        priority_ms=job_priority_ms(ready_at_ms=at_ms + position, size_bytes=size),
        created_command_index=index,
        source_count=len(part.blocks),
        source_bytes=size,
        spec={
            "sources": [block.ulid for block in part.blocks],
            "task_memory_bytes": memory,
            "bucket": tenant.bucket.name,
            "group": row.id,
            "group_id": group.group_id,
            "range_ms": group.range_ms,
            "start_ms": group.start_ms,
            "partition": part.partition,
            "partitions": group.partitions,
        },
    )


def _name(group: IntervalGroup, part: GroupPartition, tenant: BucketTenant) -> str:
    return f"{group.job_name(part)}-B{tenant.bucket_id}"


def _job_level(group: IntervalGroup) -> int:
    return min(group.level - 1, LEVEL_MAX)


def _group_columns(group: IntervalGroup) -> dict[str, Any]:
    return {
        "group_key": group.group_key,
        "range_ms": group.range_ms,
        "start_ms": group.start_ms,
        "partitions": group.partitions,
        "level": group.level,
        "is_vertical": group.is_vertical,
        "cause": group.reason[:REASON_MAX],
        "block_count": len(group.blocks),
        "byte_count": sum(block.size_bytes for block in group.blocks),
        "series_count": sum(block.series for block in group.blocks),
    }


def _note(tenant: BucketTenant, plan: IntervalPlan, now_ms: int, *, again_ms: int | None) -> None:
    """Store the result of the plan in the tenant's row, unless changes meanwhile made it due again."""
    BucketTenant.objects.filter(id=tenant.id, plan_at_ms=tenant.plan_at_ms).update(plan_at_ms=again_ms)
    BucketTenant.objects.filter(id=tenant.id).update(
        failures=0,
        refusal=plan.refusal[:REASON_MAX],
        refused_until_ms=again_ms if plan.refusal else None,
        planned_at_ms=now_ms,
        waiting=plan.waiting,
        compactions=plan.compactions,
        too_large=sum(slot.state is SlotState.TOO_LARGE for slot in plan.slots),
        parts=_published_parts(tenant),
        slots=[
            [
                slot.group_key,
                slot.range_ms,
                slot.start_ms,
                slot.state.value,
                slot.blocks,
                slot.waiting,
                slot.compactions,
            ]
            for slot in plan.slots
        ],
    )


def _published_parts(tenant: BucketTenant) -> int:
    """Return the number of visible blocks that are partitions of a group where the bucket does not allow partitions."""
    if allows_partitions(tenant.bucket):
        return 0
    return Block.objects.filter(
        tenant=tenant, state__in=PLANNABLE, visible_at_ms__isnull=False, partitions__gt=1
    ).count()
