"""Small actions on jobs: pin and unpin them, and reset their failures."""

from __future__ import annotations

from functools import partial

from engine.schedule.model import HOLDING_STATES
from webadmin.base.actions.action import ActionContext
from webadmin.schedule.errors import NotFound
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.operation_models import WHY_MAX, JobPin
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.operation import JobAction, Operation, OperationOutcome, all_of_them, change_jobs
from webadmin.schedule.services.requeue_jobs import failures_forgotten


def reset_failures(wanted: JobFilter, *, context: ActionContext) -> OperationOutcome:
    """Reset the failures of scheduled and parked jobs; parked ones stay parked. Raises FilterEmpty."""
    return change_jobs(
        JobAction(
            action="reset_failures",
            among=Job.objects.filter(state__in=HOLDING_STATES, failures__gt=0),
            their_state="failed",
            choose=all_of_them,
            change=_forget,
        ),
        wanted,
        context,
    )


def pin(wanted: JobFilter, *, worker: str, context: ActionContext) -> OperationOutcome:
    """Pin the jobs to this worker from their next assignment on. Raises FilterEmpty, NotFound."""
    if not Worker.objects.filter(name=worker).exists():
        raise NotFound(f"no worker {worker!r} has ever polled")
    pinned = JobPin.objects.filter(kind=JobPin.Kind.WORKER, value=worker)
    other = Job.objects.exclude(id__in=pinned.values("job_id"))
    return change_jobs(
        JobAction(
            action="pin",
            among=other.filter(state__in=HOLDING_STATES),
            their_state="other",
            choose=all_of_them,
            change=partial(_pin, worker=worker, context=context),
            detail={"worker": worker},
        ),
        wanted,
        context,
    )


def unpin(wanted: JobFilter, *, context: ActionContext) -> OperationOutcome:
    """Remove pins, so that any worker of any build may run the jobs. Raises FilterEmpty."""
    pinned = Job.objects.filter(id__in=JobPin.objects.values("job_id"), state__in=HOLDING_STATES)
    return change_jobs(
        JobAction(action="unpin", among=pinned, their_state="pinned", choose=all_of_them, change=_unpin),
        wanted,
        context,
    )


def _forget(run: Operation, jobs: list[Job]) -> None:
    Job.objects.filter(id__in=[job.id for job in jobs]).update(**failures_forgotten())


def _pin(run: Operation, jobs: list[Job], *, worker: str, context: ActionContext) -> None:
    JobPin.objects.filter(job__in=jobs, kind=JobPin.Kind.WORKER).delete()
    JobPin.objects.bulk_create(
        JobPin(
            job=job,
            kind=JobPin.Kind.WORKER,
            value=worker,
            command_index=run.index,
            actor=context.actor,
            why=context.why[:WHY_MAX],
        )
        for job in jobs
    )


def _unpin(run: Operation, jobs: list[Job]) -> None:
    JobPin.objects.filter(job__in=jobs).delete()
