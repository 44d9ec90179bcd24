"""Explain the state of a block, the reason, and what would change it, in the planner's words."""

from __future__ import annotations

from dataclasses import replace

from engine.lanes.tsdb.jobs import KIND
from engine.lanes.tsdb.plan.model import BlockState as PlannedState
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.schedule.errors import PolicyRefused
from engine.schedule.explain import Explanation, explain_held_back
from engine.schedule.model import HOLDING_STATES, JobState
from engine.schedule.progress import count_text
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.models import Block, BlockQuarantine
from webadmin.lanes.tsdb.planning_view import read_blocks, read_taken
from webadmin.lanes.tsdb.policies import policy_of
from webadmin.lanes.tsdb.states import BlockState
from webadmin.lanes.tsdb.unrecorded_blocks import explain_unrecorded
from webadmin.schedule.explain import explain_source
from webadmin.schedule.explain_places import pauses_of
from webadmin.schedule.models import Job

FOUND_MAX = 20
_NEXT = {
    PlannedState.GROUPED: "its group becomes a job within seconds",
    PlannedState.TAKEN: "it waits for the jobs of its group: explain those",
    PlannedState.WAITING: "it is planned when the time is reached or the blocks arrive",
    PlannedState.DUPLICATE: "a deletion mark follows",
    PlannedState.SET_ASIDE: "it is planned after the mark is removed or it is released",
    PlannedState.FINAL: "",
}


def explain_blocks(ulid: str) -> list[Explanation]:
    """Explain every block with this ULID, including bad and partial ones. A ULID is unique only within a bucket."""
    found = (
        Block.objects.filter(ulid=ulid)
        .select_related("tenant__bucket", "tenant__folder", "group")
        .defer("tenant__folder__examined", "tenant__slots")
    )
    explanations = [explain_block(block) for block in found.defer("meta", "files").order_by("id")[:FOUND_MAX]]
    return explanations + explain_unrecorded(ulid)


def explain_block(block: Block) -> Explanation:
    """Explain one block."""
    tenant = block.tenant
    subject = f"Block {block.ulid} of {tenant.bucket.name}/{tenant.name}"
    if block.state in (BlockState.LIVE, BlockState.OWNED):
        if block.visible_at_ms is None:
            return Explanation(
                subject=subject,
                state="live",
                why="its group is done, and its meta.json is still to be written to the bucket",
                next="the control task of the outbox writes it within seconds",
            )
        return _planned(subject, block)
    why, following = {
        BlockState.PENDING: (
            f"{block.made_by} wrote it, and other parts of its group are not done: it is not visible to readers",
            "the last part of its group makes it visible",
        ),
        BlockState.SUPERSEDED: (f"{block.reason}; its deletion mark is still to be written", "the outbox writes it"),
        BlockState.MARKED: (
            f"it has a deletion mark{f', because it was {block.reason}' if block.reason else ''}",
            "its objects are deleted after the bucket's deletion delay",
        ),
        BlockState.GONE: ("its objects are no longer in the bucket", ""),
    }[BlockState(block.state)]
    return Explanation(subject=subject, state=block.state, why=why, next=following)


def _planned(subject: str, block: Block) -> Explanation:
    tenant = block.tenant
    if tenant.refusal:
        return Explanation(
            subject=subject, state=block.state, why=f"planning of its tenant is refused: {tenant.refusal}", next=""
        )
    held = BlockQuarantine.objects.filter(block=block, released_at_ms=None).first()
    if held is not None:
        where = f" in {held.file}" if held.file else ""
        where += f" at {held.offset}" if held.offset >= 0 else ""
        return Explanation(
            subject=subject,
            state="quarantined",
            why=f"it cannot be read: {held.error_class}{where}: {held.message}",
            next="it is planned after it is repaired and released",
        )
    try:
        policy = policy_of(tenant.bucket)
    except PolicyRefused as error:
        return Explanation(subject=subject, state=block.state, why=str(error), next="set other ranges")
    plan = plan_intervals(tenant.name, read_blocks(tenant), policy, now_ms=dialect.clock_ms(), taken=read_taken(tenant))
    status = plan.statuses[block.ulid]
    if status.state is PlannedState.TAKEN and block.group is not None:
        jobs = Job.objects.filter(tsdb_part__group=block.group, state__in=HOLDING_STATES).order_by("id")
        if job := jobs.first():
            return _taken(subject, job, jobs.count() - 1, plan.reason(block.ulid))
    if status.state in (PlannedState.GROUPED, PlannedState.WAITING):
        if tenant.bucket.is_paused:
            why = f"the bucket {tenant.bucket.name} is paused; {plan.reason(block.ulid)}"
            then = "it is planned after the bucket is resumed"
            return Explanation(subject=subject, state="waiting", why=why, next=then)
        if paused := pauses_of(lane=KIND, tenant=tenant.name, level=0, planning=True):
            return explain_held_back(subject, paused, plan.reason(block.ulid))
    return Explanation(subject=subject, state=str(status.state), why=plan.reason(block.ulid), next=_NEXT[status.state])


def _taken(subject: str, job: Job, others: int, reason: str) -> Explanation:
    """Explain a source block of a group by one of the group's unfinished jobs."""
    explanation = explain_source(subject, job)
    more = f" and {count_text(others, 'other job')} of its group" if others else ""
    state = explanation.state if job.state == JobState.PARKED else str(PlannedState.TAKEN)
    return replace(explanation, state=state, why=f"{explanation.why}{more}; {reason}")
