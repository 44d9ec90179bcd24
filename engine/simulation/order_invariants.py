"""Invariant 9, the order of work: what each policy promises, worked out again from the snapshot in other words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from engine.lanes.profiles.plan.consolidation import join_remnants
from engine.lanes.profiles.plan.levels import cut_queue
from engine.lanes.profiles.plan.model import PlannedJob
from engine.schedule.fairness import COST_BYTES_MIN, TIME_PER_KIB
from engine.schedule.model import ChangeSet, JobState, JobView, PolicyName, ScheduleSnapshot
from engine.schedule.pauses import is_paused
from engine.schedule.priority import job_priority_ms
from engine.simulation.audit import Audit, InvariantBroken, Step

WorkKey = tuple[int, str]
"""Priority and name: the place of work among that of its tenant."""


def invariant_09_order(audit: Audit, step: Step) -> None:
    """No work is given out while a piece that comes before it could be given to the same worker.

    ``default``: of one tenant the least (priority, name); of several the one that has paid least; nothing waits while
    there is capacity. ``reference``: the least (level, status, failures, expiry, name), up to a level's faulty job.
    """
    assert step.poll is not None
    snapshot, change_set = step.poll.view.snapshot, step.poll.change_set
    work: list[JobView | PlannedJob] = [assignment.job for assignment in change_set.assigned]
    work += [creation.plan for creation in change_set.created]
    for given in work:
        planning = isinstance(given, PlannedJob)
        if is_paused(snapshot.paused, lane=given.lane, tenant=given.tenant, level=given.level, planning=planning):
            raise InvariantBroken(9, f"job {given.name} was given out though it stands still")
    if snapshot.limits.policy is PolicyName.REFERENCE:
        expected = [job.name for job in islice(_reference_order(snapshot), snapshot.capacity)]
        found = [assignment.job.name for assignment in change_set.assigned]
        if found != expected:
            raise InvariantBroken(9, f"the policy reference gives out {expected}, not {found}")
        return
    left = _left_over(snapshot, change_set)
    if not left:
        return
    if len(change_set.assigned) + len(change_set.created) < snapshot.capacity:
        raise InvariantBroken(9, f"work of {sorted(left)} was left though there was capacity")
    for tenant, key in _given_keys(snapshot, change_set):
        if tenant in left and left[tenant] < key:
            raise InvariantBroken(9, f"job {key[1]} was given out before {left[tenant][1]}")
    _check_shares(snapshot, change_set, left)


def _reference_order(snapshot: ScheduleSnapshot) -> Iterator[JobView]:
    named = {report.update.job for report in snapshot.reports}
    jobs = [
        job
        for job in snapshot.assignable
        if job.name not in named and not is_paused(snapshot.paused, lane=job.lane, tenant=job.tenant, level=job.level)
    ]
    stopped: set[int] = set()
    order = sorted(
        jobs, key=lambda j: (j.level, j.state is not JobState.WAITING, j.failures, j.lease_expires_ms, j.name.encode())
    )
    for job in order:
        if job.level in stopped:
            continue
        if job.state is JobState.WAITING:
            yield job
        elif job.is_exhausted(snapshot.limits):
            stopped.add(job.level)
        elif job.has_expired(snapshot.now_ms):
            yield job


def _left_over(snapshot: ScheduleSnapshot, change_set: ChangeSet) -> dict[str, WorkKey]:
    """Return the first work of each tenant that could have been given out and was not."""
    capped = {view.tenant for view in snapshot.tenants if view.running_max}
    named = {report.update.job for report in snapshot.reports} | {r.job.name for r in change_set.returned}
    given = {a.job.name for a in change_set.assigned} | {c.plan.name for c in change_set.created}
    left: dict[str, WorkKey] = {}
    for job in snapshot.assignable:
        is_over = job.has_expired(snapshot.now_ms) and not job.is_exhausted(snapshot.limits)
        is_open = is_over or (job.state is JobState.WAITING and job.tenant not in capped)
        is_open &= not is_paused(snapshot.paused, lane=job.lane, tenant=job.tenant, level=job.level)
        if is_open and job.name not in named and job.name not in given:
            left[job.tenant] = min(left.get(job.tenant, job.order()), job.order())
    if _has_room(snapshot, change_set):
        for plan, key in _plans(snapshot):
            if plan.name not in given and plan.tenant not in capped:
                left[plan.tenant] = min(left.get(plan.tenant, key), key)
    return left


def _has_room(snapshot: ScheduleSnapshot, change_set: ChangeSet) -> bool:
    """Say whether one more new job would certainly fit."""
    return snapshot.limits.queue_max == 0 or (
        snapshot.live_job_count + len(change_set.created) < snapshot.limits.queue_max
    )


def _plans(snapshot: ScheduleSnapshot) -> Iterator[tuple[PlannedJob, WorkKey]]:
    for queue in join_remnants(snapshot.queues, now_ms=snapshot.now_ms):
        if is_paused(snapshot.paused, lane=queue.lane, tenant=queue.tenant, level=queue.level, planning=True):
            continue
        for position, plan in enumerate(islice(cut_queue(queue, now_ms=snapshot.now_ms), snapshot.capacity)):
            since_ms = snapshot.now_ms if position else max(plan.ready_at_ms, queue.served_at_ms)
            yield plan, (job_priority_ms(ready_at_ms=since_ms, size_bytes=plan.size_bytes()), plan.name)


def _given_keys(snapshot: ScheduleSnapshot, change_set: ChangeSet) -> Iterator[tuple[str, WorkKey]]:
    for assignment in change_set.assigned:
        yield assignment.job.tenant, assignment.job.order()
    created = {creation.plan.name for creation in change_set.created}
    for plan, key in _plans(snapshot):
        if plan.name in created:
            yield plan.tenant, key


def _check_shares(snapshot: ScheduleSnapshot, change_set: ChangeSet, left: Iterable[str]) -> None:
    """Whoever was served last had paid no more than any tenant whose work was left."""
    views = {view.tenant: view for view in snapshot.tenants}
    lane_time = max((lane.tenant_time for lane in snapshot.lanes), default=0)
    paid = {tenant: max(view.virtual_time, lane_time) for tenant, view in views.items()}
    paid |= {charge.tenant: charge.virtual_time for charge in change_set.tenants}
    sizes: dict[str, int] = {}
    for tenant, size in (
        *((a.job.tenant, a.job.size_bytes) for a in change_set.assigned),
        *((c.plan.tenant, c.plan.size_bytes()) for c in change_set.created),
    ):
        sizes[tenant] = max(sizes.get(tenant, COST_BYTES_MIN), size)
    for tenant, size in sizes.items():
        started = paid[tenant] - (size >> 10) * TIME_PER_KIB // views[tenant].weight
        for other in left:
            if started > paid[other]:
                raise InvariantBroken(9, f"tenant {tenant} was served after {other!r}, which had paid less")
