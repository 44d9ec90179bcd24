"""Explain the state of blocks: where a block is, the reason, and possible actions."""

from __future__ import annotations

from engine.formats.profile_block.model import COMPACTION_LEVEL_MAX
from engine.lanes.profiles.plan.model import LevelPolicy
from engine.schedule.explain import (
    Explanation,
    QueueFacts,
    explain_final,
    explain_outdated,
    explain_parked_block,
    explain_quarantined,
    explain_queued,
    explain_replaced,
)
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, BlockLineage, DeadLetter, LetterState, Tombstone
from webadmin.lanes.profiles.operator_queries import find_blocks, whole_ulid
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.quarantine_models import Quarantine
from webadmin.lanes.profiles.services.retain import past_retention
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule import queries
from webadmin.schedule.blockers import cap_words
from webadmin.schedule.command_log import read_time
from webadmin.schedule.errors import PolicyMissing
from webadmin.schedule.explain import explain_source
from webadmin.schedule.explain_places import pauses_of
from webadmin.schedule.models import LogHead
from webadmin.schedule.polls.polling_workers import polling_worker_count

FOUND_MAX = 20


def explain_blocks(name: str) -> list[Explanation]:
    """Explain every block that matches an id, its first 6 characters or more, or an object key."""
    blocks = find_blocks(Block.objects.defer("metadata").select_related("queue", "owner_job"), name)
    return [explain_block_row(block) for block in blocks[:FOUND_MAX]]


def explain_letters(name: str) -> list[Explanation]:
    """Explain every waiting dead letter that matches a block id or an object key."""
    letters = DeadLetter.objects.filter(ulid=whole_ulid(name) or "", state=LetterState.WAITING)
    return [
        Explanation(
            subject=f"Object {letter.ulid}",
            state="a dead letter",
            why=f"it was written but could not be registered: {letter.reason or letter.code}",
            next="a control task retries it within a minute, and an operator may discard it",
        )
        for letter in letters.order_by("id")
    ]


def explain_block_row(block: Block) -> Explanation:
    """Explain one block."""
    subject = f"{'Block' if block.level else 'Segment'} {block.ulid}"
    if block.state == BlockState.QUEUED and block.queue is not None:
        facts = _queue_facts(block.queue)
        is_outdated = bool(past_retention([block.id], now_ms=read_time().wall_ms))
        return explain_outdated(subject, facts) if is_outdated else explain_queued(subject, facts)
    if block.state == BlockState.OWNED and block.owner_job is not None:
        held = Quarantine.objects.filter(block=block, released_at_ms=None).first()
        return _quarantined(subject, held) if held else explain_source(subject, block.owner_job)
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
        partial_batch_bytes=policy.partial_batch_bytes if policy else 0,
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


def _place(tenant: str, shard: int, level: int) -> str:
    return f"{tenant or 'segments'}, shard {shard}, level {level}"
