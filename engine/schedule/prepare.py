"""Decide the changes of one poll: a pure function from snapshot to change set.

Reports are settled first. Then waiting jobs, expired jobs and newly planned jobs are assigned together, up to the
capacity that the worker offers. The rules:

1. A report counts only if its job is leased to this worker under exactly this token.
2. A job that the request reports on is not assigned by the same poll.
3. A lease has expired only when its end is strictly past. A takeover of an expired job counts as a failure, and so does
   a return with a reason. An expired job that has reached its failure limit is faulty: it is not run again and is
   parked one lease later, or sooner if its place is needed; until then its worker may still complete it.
4. Lanes and tenants share the capacity by weight (``fairness``). The work of one tenant is sorted by priority
   (``priority``), and its queues are served in rotation, whatever their level.
5. No job is planned above the queue limit or above this worker's capacity. At the limit one faulty job is parked for
   each job that is added.
6. Paused scopes are neither planned nor assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from engine.core.fast_dataclasses import fast_constructor
from engine.schedule.fairness import Candidate, FairShare, LaneView, TenantView
from engine.schedule.model import (
    AssignJob,
    AttemptOutcome,
    ChangeSet,
    CreateJob,
    JobState,
    JobView,
    PlannedWork,
    ReturnJob,
    ScheduleSnapshot,
)
from engine.schedule.pauses import is_paused
from engine.schedule.priority import job_priority_ms
from engine.schedule.queue_room import QueueRoom
from engine.schedule.reports import PARKED_FOR_FAILURES, settle_reports

View = TypeVar("View", LaneView, TenantView)
settled = fast_constructor(ChangeSet)


def prepare(snapshot: ScheduleSnapshot) -> ChangeSet:
    """Return the changes of a poll. Deterministic: equal snapshots give equal change sets."""
    renewed, completed, returned = settle_reports(snapshot)
    if not snapshot.assignable and not snapshot.queues:  # fast path of most polls: renewals only
        return settled(renewed=tuple(renewed), completed=tuple(completed), returned=tuple(returned))
    faulty = _faulty(snapshot)
    parked = [job for job in faulty if snapshot.now_ms > job.lease_expires_ms + snapshot.limits.lease_ms]
    ended = [*(c.job for c in completed), *(r.job for r in returned)]
    freed = [*(c.job for c in completed), *(r.job for r in returned if r.parked_reason), *parked]
    room = QueueRoom(snapshot, freed=freed, faulty=[job for job in faulty if job not in parked])
    share = FairShare(*_views(snapshot, ended), _candidates(snapshot, {job.name for job in faulty}))
    assigned: list[AssignJob] = []
    created: list[CreateJob] = []
    for candidate in share:
        if len(assigned) + len(created) >= snapshot.capacity:
            break
        if isinstance(candidate.work, JobView):
            assigned.append(AssignJob(job=candidate.work, failures=candidate.work.failures + candidate.is_running))
        elif room.take(candidate.lane):
            created.append(CreateJob(plan=candidate.work))
        else:
            continue
        share.charge(candidate)
    tenants, lanes = share.charges()
    return ChangeSet(
        renewed=tuple(renewed),
        completed=tuple(completed),
        returned=(*returned, *map(_parked, parked), *map(_parked, room.evicted)),
        assigned=tuple(assigned),
        created=tuple(created),
        tenants=tenants,
        lanes=lanes,
    )


def _unnamed(snapshot: ScheduleSnapshot) -> Iterator[JobView]:
    """Return the assignable jobs that the request does not report on."""
    named = {report.update.job for report in snapshot.reports}
    return (job for job in snapshot.assignable if job.name not in named)


def _faulty(snapshot: ScheduleSnapshot) -> list[JobView]:
    """Return the expired jobs at their failure limit, in the order of their eviction."""
    faulty = [
        job for job in _unnamed(snapshot) if job.has_expired(snapshot.now_ms) and job.is_exhausted(snapshot.limits)
    ]
    return sorted(faulty, key=lambda job: (job.failures, job.lease_expires_ms, job.name))


def _candidates(snapshot: ScheduleSnapshot, faulty: set[str]) -> Iterator[Candidate[JobView | PlannedWork]]:
    for job in _unnamed(snapshot):
        is_over = job.has_expired(snapshot.now_ms)
        if not (is_over or job.state is JobState.WAITING) or job.name in faulty:
            continue
        if not is_paused(snapshot.paused, lane=job.lane, tenant=job.tenant, level=job.level):
            yield Candidate(
                lane=job.lane,
                tenant=job.tenant,
                priority_ms=job.priority_ms,
                name=job.name,
                size_bytes=job.size_bytes,
                work=job,
                is_running=is_over,
            )
    for queue in snapshot.queues:
        if not is_paused(snapshot.paused, lane=queue.lane, tenant=queue.tenant, level=queue.level, planning=True):
            # All jobs of a queue but the first are ranked as if the queue had just been served.
            for position, plan in enumerate(queue.jobs):
                since_ms = snapshot.now_ms if position else max(plan.ready_at_ms, queue.served_at_ms)
                yield Candidate(
                    lane=plan.lane,
                    tenant=plan.tenant,
                    priority_ms=job_priority_ms(ready_at_ms=since_ms, size_bytes=plan.size_bytes()),
                    name=plan.name,
                    size_bytes=plan.size_bytes(),
                    work=plan,
                )


def _views(snapshot: ScheduleSnapshot, ended: Iterable[JobView]) -> tuple[list[LaneView], list[TenantView]]:
    """Return lanes and tenants without the jobs that this poll ends in their running counts."""
    gone: dict[tuple[str, ...], tuple[int, int]] = {}
    for job in ended:
        for key in ((job.lane,), (job.lane, job.tenant)):
            count, size = gone.get(key, (0, 0))
            gone[key] = (count + 1, size + job.size_bytes)
    lanes = [_less(lane, gone.get((lane.lane,))) for lane in snapshot.lanes]
    tenants = [_less(tenant, gone.get((tenant.lane, tenant.tenant))) for tenant in snapshot.tenants]
    return lanes, tenants


def _less(view: View, gone: tuple[int, int] | None) -> View:
    """Return the view with its running count and bytes reduced."""
    if gone is None or not (view.running_count or view.running_bytes):
        return view
    count, size = gone
    return replace(
        view, running_count=max(0, view.running_count - count), running_bytes=max(0, view.running_bytes - size)
    )


def _parked(job: JobView) -> ReturnJob:
    reason = f"{PARKED_FOR_FAILURES}; the last time its lease ran out"
    return ReturnJob(job=job, outcome=AttemptOutcome.EXPIRED, failures=job.failures, parked_reason=reason)
