"""End parked jobs and return their blocks to their queues, where they are planned again."""

from __future__ import annotations

from collections.abc import Sequence

from engine.schedule.limits import ScopeKind
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, AttemptOutcome, JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.lanes import by_lane, lane_of
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.operation_models import JobPin, LimitChange
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.operation import Chosen, JobAction, Operation, OperationOutcome, change_jobs

REASON_MAX = 500


def return_job_blocks(wanted: JobFilter, *, context: ActionContext) -> OperationOutcome:
    """End parked jobs and return their blocks; quarantined ones are left. Raises FilterEmpty."""
    return change_jobs(
        JobAction(
            action="return_job_blocks",
            among=Job.objects.filter(state=JobState.PARKED),
            their_state="parked",
            choose=_choose,
            change=_give_back,
        ),
        wanted,
        context,
    )


def _choose(jobs: list[Job], room: int) -> Chosen:
    held = [job for job in jobs if job.parked_kind == ParkedKind.QUARANTINED]
    return [job for job in jobs if job not in held], [(job.name, "it is quarantined: release it") for job in held]


def _give_back(run: Operation, jobs: list[Job]) -> None:
    for lane, own in by_lane(jobs).items():
        lane_of(lane).give_back(run, own)
    dissolve(run, jobs)


def end_jobs(run: Operation, jobs: Sequence[Job], *, because: str) -> None:
    """End jobs of a lane in any state; the lane releases their sources itself.

    A worker that runs one gets no lease for it at its next poll.
    """
    held = [job for job in jobs if job.state in HOLDING_STATES]
    ids = [job.id for job in held]
    run.live_jobs -= sum(job.state in LIVE_STATES for job in held)
    Attempt.objects.filter(job__in=ids, outcome=AttemptOutcome.RUNNING).update(
        outcome=AttemptOutcome.REVOKED, ended_at_ms=run.time.now_ms
    )
    Job.objects.filter(id__in=ids).update(
        state=JobState.PARKED, parked_reason=because[:REASON_MAX], lease_expires_ms=None
    )
    dissolve(run, held)


def dissolve(run: Operation, jobs: Sequence[Job]) -> None:
    """End parked jobs that own no blocks any more, with their own limits and pins."""
    Job.objects.filter(id__in=[job.id for job in jobs], state=JobState.PARKED).update(
        state=JobState.DISSOLVED, parked_kind="", parked_reason="", finished_at_ms=run.time.now_ms
    )
    JobPin.objects.filter(job__in=jobs).delete()
    own = LimitChange.objects.filter(scope_kind=ScopeKind.JOB, scope_value__in=[job.name for job in jobs])
    own.filter(is_superseded=False).update(is_superseded=True)
