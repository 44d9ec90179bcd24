"""Invariant 9, the order of work: an independent check of assignments against the snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine.schedule.fairness import COST_BYTES_MIN, TIME_PER_KIB
from engine.schedule.model import ChangeSet, JobState, JobView, PlannedWork, ScheduleSnapshot
from engine.schedule.pauses import is_paused
from engine.schedule.priority import job_priority_ms
from engine.simulation.checks.audit import Audit, InvariantBroken, Step

WorkKey = tuple[int, str]
"""Priority and name: the sort key of work within its tenant."""


def invariant_09_order(audit: Audit, step: Step) -> None:
    """No work is assigned while work that precedes it could be assigned to the same worker.

    Within a tenant the smallest (priority, name) comes first, of several tenants the one with the smallest virtual
    time. No assignable work waits while there is capacity.
    """
    assert step.poll is not None
    snapshot, change_set = step.poll.view.snapshot, step.poll.change_set
    assigned: list[tuple[JobView | PlannedWork, bool]] = [(one.job, False) for one in change_set.assigned]
    for given, planning in [*assigned, *((one.plan, True) for one in change_set.created)]:
        if is_paused(snapshot.paused, lane=given.lane, tenant=given.tenant, level=given.level, planning=planning):
            raise InvariantBroken(9, f"job {given.name} was assigned although it is paused")
    left = _left_over(snapshot, change_set)
    if not left:
        return
    if len(change_set.assigned) + len(change_set.created) < snapshot.capacity:
        raise InvariantBroken(9, f"work of {sorted(left)} was not assigned although there was capacity")
    for tenant, key in _given_keys(snapshot, change_set):
        if tenant in left and left[tenant] < key:
            raise InvariantBroken(9, f"job {key[1]} was assigned before {left[tenant][1]}")
    _check_shares(snapshot, change_set, left)


def _left_over(snapshot: ScheduleSnapshot, change_set: ChangeSet) -> dict[str, WorkKey]:
    """Return the first work of each tenant that could have been assigned and was not."""
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
    """Return whether one more new job would certainly fit."""
    return snapshot.limits.queue_max == 0 or (
        snapshot.live_job_count + len(change_set.created) < snapshot.limits.queue_max
    )


def _plans(snapshot: ScheduleSnapshot) -> Iterator[tuple[PlannedWork, WorkKey]]:
    for queue in snapshot.queues:
        if is_paused(snapshot.paused, lane=queue.lane, tenant=queue.tenant, level=queue.level, planning=True):
            continue
        for position, plan in enumerate(queue.jobs):
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
    """Check that the tenant served last had a virtual time no larger than any tenant with work left."""
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
                raise InvariantBroken(
                    9, f"tenant {tenant} was served after {other!r}, which had a smaller virtual time"
                )
