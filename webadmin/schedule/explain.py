"""Finds out for any block or job what ``engine.schedule.explain`` needs, and returns its sentence.

A thing is named by its block id, its job name, an object key, or a job's row number; a handful of queries, no scan.
"""

from __future__ import annotations

from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from engine.lanes.profiles.plan.model import LevelPolicy
from engine.schedule.explain import (
    Explanation,
    JobFacts,
    QueueFacts,
    explain_final,
    explain_job,
    explain_outdated,
    explain_owned,
    explain_parked_block,
    explain_quarantined,
    explain_queued,
    explain_replaced,
)
from engine.schedule.limits import LimitName
from engine.schedule.model import JobState
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, BlockLineage, Tombstone
from webadmin.lanes.profiles.operator_queries import find_blocks
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.services.retain import past_retention
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule import queries
from webadmin.schedule.command_log import read_time
from webadmin.schedule.errors import NotFound, PolicyMissing
from webadmin.schedule.explain_places import explain_tenant, pauses_of
from webadmin.schedule.hindrances import cap_words, pin_words
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job, LogHead
from webadmin.schedule.operation_models import Quarantine
from webadmin.schedule.polling_workers import polling_worker_count
from webadmin.schedule.register import with_last_error

FOUND_MAX = 20
NAME_MAX = 1100
NAMES = (
    "a block id or its first 6 characters, an object key, a job name, a tenant, TENANT/TABLE, TENANT/REPOSITORY, "
    "TENANT/REPOSITORY/BRANCH, or the path of a file in its table"
)
"""What can be explained."""


def explain_name(name: str) -> list[Explanation]:
    """Explain every block or job of this name (block ids are unique in a shard only). Raises NotFound."""
    name = name.strip()[:NAME_MAX]
    found = _explained(name) if _can_be_stored(name) else []
    if not found:
        raise NotFound(f"nothing is called {name[:60]!r}: give {NAMES}")
    return found


def _can_be_stored(name: str) -> bool:
    """Say whether a database takes the text at all: PostgreSQL has no NUL, and nothing has half a character."""
    return "\0" not in name and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _explained(name: str) -> list[Explanation]:
    jobs = Job.objects.filter(name=name).order_by("-id")
    if not jobs and name.isascii() and name.isdigit() and len(name) < 19:
        jobs = Job.objects.filter(id=int(name))
    found = [explain_job_row(job) for job in jobs[:1]]
    if not found:
        blocks = find_blocks(Block.objects.defer("metadata").select_related("queue", "owner_job"), name)
        found = [explain_block_row(block) for block in blocks[:FOUND_MAX]]
        found += [told for lane in lanes() for told in lane.explain(name)]
        found += explain_tenant(name)
    return found


def explain_job_row(job: Job) -> Explanation:
    """Explain one job."""
    return explain_job(_job_facts(job))


def explain_source(subject: str, job: Job) -> Explanation:
    """Explain a source of a job of any lane: its fate is the job's."""
    return explain_owned(subject, _job_facts(job))


def explain_block_row(block: Block) -> Explanation:
    """Explain one block."""
    subject = f"{'Block' if block.level else 'Segment'} {block.ulid}"
    if block.state == BlockState.QUEUED and block.queue is not None:
        facts = _queue_facts(block.queue)
        is_outdated = bool(past_retention([block.id], now_ms=read_time().wall_ms))
        return explain_outdated(subject, facts) if is_outdated else explain_queued(subject, facts)
    if block.state == BlockState.OWNED and block.owner_job is not None:
        held = Quarantine.objects.filter(block=block, released_at_ms=None).first()
        return _quarantined(subject, held) if held else explain_owned(subject, _job_facts(block.owner_job))
    if block.state == BlockState.PARKED:
        return explain_parked_block(subject, block.parked_reason)
    if block.state == BlockState.FINAL:
        return explain_final(subject, max(block.level, COMPACTION_LEVEL_MAX))
    return _replaced(subject, block)


def _quarantined(subject: str, held: Quarantine) -> Explanation:
    where = f" in {held.section}" if held.section else ""
    where += f" at {held.offset}" if held.offset >= 0 else ""
    return explain_quarantined(
        subject,
        cause=held.cause,
        reason=f"{held.error_class}{where}",
        attempts=held.attempts,
        since_ms=read_time().now_ms - held.at_ms,
    )


def _replaced(subject: str, block: Block) -> Explanation:
    results = BlockLineage.objects.filter(source=block).order_by("result_id").values_list("result__ulid", flat=True)
    tombstone = Tombstone.objects.filter(block=block).first()
    left_ms = None if tombstone is None else tombstone.eligible_at_ms - read_time().now_ms
    return explain_replaced(
        subject,
        job=block.owner_job.name if block.owner_job else "",
        result_ids=list(results[:FOUND_MAX]),
        deletes_in_ms=left_ms,
        is_deleted=block.state == BlockState.DELETED,
    )


def _queue_facts(queue: LevelQueue) -> QueueFacts:
    now_ms = read_time().now_ms
    limits = queries.limits_now(now_ms)
    live_jobs = LogHead.objects.values_list("live_job_count", flat=True).get()
    policy = _policy(queue)
    return QueueFacts(
        name=f"the queue of {_place(queue.tenant, queue.shard, queue.level)}",
        now_ms=now_ms,
        block_count=queue.block_count,
        byte_count=queue.byte_count,
        ready_at_ms=queue.ready_at_ms if queue.ready_at_ms is not None else now_ms,
        blocks_max=policy.blocks_max if policy else None,
        remnant_bytes=policy.remnant_bytes if policy else 0,
        paused=pauses_of(lane=queue.lane, tenant=queue.tenant, level=queue.level, planning=True),
        is_schedule_full=0 < limits.queue_max <= live_jobs,
        polling_workers=polling_worker_count(),
        capped=cap_words(now_ms, lane=queue.lane, tenant=queue.tenant),
    )


def _policy(queue: LevelQueue) -> LevelPolicy | None:
    try:
        return LevelPolicies().of(queue.lane, queue.tenant, queue.level)
    except PolicyMissing:
        return None


def _job_facts(job: Job) -> JobFacts:
    now_ms = read_time().now_ms
    told = with_last_error(Job.objects.filter(pk=job.pk)).values_list("last_error_class", flat=True).first()
    global_max = queries.limits_now(now_ms).failures_max
    limits = queries.effective_limits(now_ms, tenants=[job.tenant], jobs=[job.name])
    results = (job.result or {}).get("blocks", []) if isinstance(job.result, dict) else []
    return JobFacts(
        name=job.name,
        state=JobState(job.state),
        now_ms=now_ms,
        lease_expires_ms=job.lease_expires_ms or 0,
        finished_at_ms=job.finished_at_ms,
        worker=job.worker.name if job.worker else "",
        source_count=job.source_count,
        shard_count=len({job.shard, *job.spec.get("source_shards", {}).values()}),
        is_rewrite=job.spec.get("is_rewrite", False),
        failures=job.failures,
        failures_max=limits.value(LimitName.FAILURES_MAX, global_max, lane=job.lane, tenant=job.tenant, job=job.name),
        parked_kind=job.parked_kind,
        parked_reason=job.parked_reason,
        last_error=told or "",
        result_ids=[str(block["id"]) for block in results if isinstance(block, dict) and "id" in block],
        paused=pauses_of(lane=job.lane, tenant=job.tenant, level=job.level, planning=False),
        polling_workers=polling_worker_count(),
        capped=cap_words(now_ms, lane=job.lane, tenant=job.tenant),
        pinned=pin_words(job, wall_ms=read_time().wall_ms),
    )


def _place(tenant: str, shard: int, level: int) -> str:
    return f"{tenant or 'segments'}, shard {shard}, level {level}"
