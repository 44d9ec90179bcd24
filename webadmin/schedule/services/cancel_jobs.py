"""Park jobs by an operator's action: they keep their blocks until they are requeued or the blocks are given back.

A worker that runs such a job does not get its lease renewed at its next poll and stops.
"""

from __future__ import annotations

from functools import partial

from engine.schedule.model import LIVE_STATES, AttemptOutcome, JobState, ParkedKind
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.operation import JobAction, Operation, OperationOutcome, all_of_them, change_jobs


def cancel(wanted: JobFilter, *, context: ActionContext) -> OperationOutcome:
    """Park scheduled jobs as deferred, even if a worker holds them. Raises FilterEmpty."""
    reason = (f"parked by {context.actor}" + (f": {context.why}" if context.why else ""))[:500]
    return change_jobs(
        JobAction(
            action="cancel",
            among=Job.objects.filter(state__in=LIVE_STATES),
            their_state="scheduled",
            choose=all_of_them,
            change=partial(_park, reason=reason),
            detail={"parked_reason": reason},
        ),
        wanted,
        context,
    )


def _park(run: Operation, jobs: list[Job], *, reason: str) -> None:
    ids = [job.id for job in jobs]
    running = Attempt.objects.filter(job__in=ids, outcome=AttemptOutcome.RUNNING)
    running.update(outcome=AttemptOutcome.REVOKED, ended_at_ms=run.time.now_ms)
    run.live_jobs -= Job.objects.filter(id__in=ids, state__in=LIVE_STATES).update(
        state=JobState.PARKED,
        parked_kind=ParkedKind.DEFERRED,
        parked_reason=reason,
        lease_expires_ms=None,
        progress=None,
    )
