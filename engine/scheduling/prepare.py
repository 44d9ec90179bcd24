"""Decides what one poll changes: a snapshot goes in, a change set comes out; nothing else is read or written.

In this order: reports are settled, jobs that wait or whose lease is over are assigned, new jobs are planned and
assigned, all up to the capacity the worker offers. The rules:

1. A report counts only if its job is leased to this worker under exactly this token.
2. A job that the request names is not assigned by the same poll: its worker just spoke of it.
3. A lease is over only when its end is strictly past. Taking over an expired job counts as a failure, and so does a
   return with a reason; a job whose failures have reached the limit is parked instead of getting another run.
4. Jobs are assigned in the order of their level, failures, age and name.
5. No job is planned above the queue limit, and none that this worker could not take at once.
"""

from __future__ import annotations

from engine.planning.levels import plan_jobs
from engine.protocol.messages import UpdateStatus
from engine.scheduling.model import (
    AssignJob,
    AttemptOutcome,
    ChangeSet,
    CompleteJob,
    CreateJob,
    JobState,
    JobView,
    RenewLease,
    Report,
    ReturnJob,
    ScheduleLimits,
    ScheduleSnapshot,
)

PARKED_FOR_FAILURES = "failed too often"


def prepare(snapshot: ScheduleSnapshot) -> ChangeSet:
    """Return what this poll changes. The same snapshot always gives the same change set."""
    renewed, completed, returned = _settle(snapshot)
    assigned, exhausted = _assign(snapshot)
    room = _room(snapshot, freed=len(completed) + len(exhausted) + sum(bool(r.parked_reason) for r in returned))
    created = plan_jobs(snapshot.queues, now_ms=snapshot.now_ms, count_max=min(room, snapshot.capacity - len(assigned)))
    return ChangeSet(
        renewed=tuple(renewed),
        completed=tuple(completed),
        returned=(*returned, *exhausted),
        assigned=tuple(assigned),
        created=tuple(CreateJob(plan=plan) for plan in created),
    )


def _settle(snapshot: ScheduleSnapshot) -> tuple[list[RenewLease], list[CompleteJob], list[ReturnJob]]:
    """Sort the reports that count by what they ask for."""
    renewed: list[RenewLease] = []
    completed: list[CompleteJob] = []
    returned: list[ReturnJob] = []
    settled: set[str] = set()
    for report in snapshot.reports:
        job = snapshot.reported.get(report.update.job)
        if job is None or job.name in settled or not _holds(job, report, snapshot.worker):
            continue
        settled.add(job.name)
        if report.update.status is UpdateStatus.IN_PROGRESS:
            renewed.append(RenewLease(job=job, progress=report.update.progress))
        elif report.result is not None:
            completed.append(CompleteJob(job=job, result=report.result))
        else:
            returned.append(_returned(job, report, snapshot.limits))
    return renewed, completed, returned


def _holds(job: JobView, report: Report, worker: str) -> bool:
    return job.state is JobState.LEASED and job.worker == worker and report.token == job.token


def _returned(job: JobView, report: Report, limits: ScheduleLimits) -> ReturnJob:
    """Take a job back; whoever says why it failed is believed, but never more often than the limit."""
    reason = report.refusal or report.update.reason
    if reason is None:
        return ReturnJob(job=job, outcome=AttemptOutcome.RELEASED, failures=job.failures)
    outcome = AttemptOutcome.REFUSED if report.refusal else AttemptOutcome.FAILED
    if job.is_exhausted(limits.failures_max):
        parked = f"{PARKED_FOR_FAILURES}; the last time: {reason.error_class}: {reason.message}"
        return ReturnJob(job=job, outcome=outcome, failures=job.failures, reason=reason, parked_reason=parked)
    return ReturnJob(job=job, outcome=outcome, failures=job.failures + 1, reason=reason)


def _assign(snapshot: ScheduleSnapshot) -> tuple[list[AssignJob], list[ReturnJob]]:
    """Choose among the jobs that wait or whose lease is over; park those of the latter that have no run left."""
    assigned: list[AssignJob] = []
    exhausted: list[ReturnJob] = []
    named = {report.update.job for report in snapshot.reports}
    for job in sorted(snapshot.assignable, key=JobView.order):
        if job.name in named:
            continue
        expired = job.has_expired(snapshot.now_ms)
        if expired and job.is_exhausted(snapshot.limits.failures_max):
            exhausted.append(_parked(job))
        elif (expired or job.state is JobState.WAITING) and len(assigned) < snapshot.capacity:
            assigned.append(AssignJob(job=job, failures=job.failures + expired))
    return assigned, exhausted


def _parked(job: JobView) -> ReturnJob:
    reason = f"{PARKED_FOR_FAILURES}; the last time its lease ran out"
    return ReturnJob(job=job, outcome=AttemptOutcome.EXPIRED, failures=job.failures, parked_reason=reason)


def _room(snapshot: ScheduleSnapshot, *, freed: int) -> int:
    if snapshot.limits.queue_max == 0:
        return snapshot.capacity
    return max(0, snapshot.limits.queue_max - snapshot.live_job_count + freed)
