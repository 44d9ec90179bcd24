"""Settle the reports of a poll: which of them count, and which change each requests.

A job whose assignment never reached the worker is returned at once without a failure. This is certain only if the
worker has received a later answer and still does not report the job under its token: the polls of a worker are
sequential, so the lost answer cannot arrive any more. Repeated and delayed requests carry an earlier index, and a
restarted worker carries none; their jobs, and jobs whose lease has ended, expire like those of a silent worker.
"""

from __future__ import annotations

from engine.core.fast_dataclasses import fast_constructor
from engine.protocol.messages import FailureReason, UpdateStatus
from engine.schedule.model import (
    AttemptOutcome,
    CompleteJob,
    JobState,
    JobView,
    RenewLease,
    Report,
    ReturnJob,
    ScheduleLimits,
    ScheduleSnapshot,
)

# Attribute access on an enum class is ten times slower than a global name, and most polls do little else.
LEASED, IN_PROGRESS = JobState.LEASED, UpdateStatus.IN_PROGRESS
renew_lease = fast_constructor(RenewLease)

PARKED_FOR_FAILURES = "failed too often"
ANSWER_LOST = FailureReason(
    error_class="AnswerLost", message="the answer that assigned the job did not reach the worker"
)


def settle_reports(snapshot: ScheduleSnapshot) -> tuple[list[RenewLease], list[CompleteJob], list[ReturnJob]]:
    """Return the renewals, completions and returns that the valid reports request."""
    renewed: list[RenewLease] = []
    completed: list[CompleteJob] = []
    returned: list[ReturnJob] = []
    settled: set[str] = set()
    reported, worker = snapshot.reported, snapshot.worker
    for report in snapshot.reports:
        update = report.update
        job = reported.get(update.job)
        if job is None or job.name in settled:
            continue
        if job.state is not LEASED or job.worker != worker or job.token != report.token:
            continue
        settled.add(job.name)
        if update.status is IN_PROGRESS:
            renewed.append(renew_lease(job=job, progress=update.progress))
        elif report.result is not None:
            completed.append(CompleteJob(job=job, result=report.result))
        else:
            returned.append(_returned(job, report, snapshot.limits))
    for job in snapshot.held:
        if job.name not in settled and _is_answer_lost(job, snapshot):
            returned.append(_unheard(job))
    return renewed, completed, returned


def _is_answer_lost(job: JobView, snapshot: ScheduleSnapshot) -> bool:
    is_here = job.state is LEASED and job.worker == snapshot.worker
    return is_here and job.token <= snapshot.last_serial and not job.has_expired(snapshot.now_ms)


def _unheard(job: JobView) -> ReturnJob:
    return ReturnJob(job=job, outcome=AttemptOutcome.RELEASED, failures=job.failures, reason=ANSWER_LOST)


def _returned(job: JobView, report: Report, limits: ScheduleLimits) -> ReturnJob:
    """Return a job to the schedule; a failure reason adds a failure, and at the failure limit the job is parked."""
    reason = report.refusal or report.update.reason
    if reason is None:
        return ReturnJob(job=job, outcome=AttemptOutcome.RELEASED, failures=job.failures)
    outcome = AttemptOutcome.REFUSED if report.refusal else AttemptOutcome.FAILED
    if job.is_exhausted(limits):
        parked = f"{PARKED_FOR_FAILURES}; the last time: {reason.error_class}: {reason.message}"
        return ReturnJob(job=job, outcome=outcome, failures=job.failures, reason=reason, parked_reason=parked)
    return ReturnJob(job=job, outcome=outcome, failures=job.failures + 1, reason=reason)
