"""Read the snapshot of one poll. The number of queries and rows is bounded by capacity and reports alone.

Nothing here is locked: ``apply_change_set`` checks again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from engine.protocol.errors import InvalidToken
from engine.protocol.messages import FailureReason, JobUpdate, PollRequest, UpdateStatus
from engine.protocol.tokens import TokenCodec
from engine.schedule.limits import EffectiveLimits, LimitName
from engine.schedule.model import HOLDING_STATES, JobState, JobView, PlannedQueue, Report, ScheduleSnapshot
from webadmin.base.database.dialect import among, as_instance, read_rows
from webadmin.schedule.blockers import unclaimable_jobs
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.lanes import (
    Accepted,
    Finished,
    LanePlans,
    PlanRequest,
    by_lane,
    check_results,
    lane_of,
    lanes,
)
from webadmin.schedule.models import Job, Worker
from webadmin.schedule.polls.opening import PollOpening, open_poll
from webadmin.schedule.polls.pins import open_to
from webadmin.schedule.polls.tenant_shares import (
    CappedTenants,
    TenantKey,
    capped_tenants,
    read_shares,
    without_ending,
    without_paused,
)
from webadmin.schedule.polls.waiting_ahead import waiting_ahead
from webadmin.schedule.queries import effective_limits, schedule_limits

JOB_COLUMNS = (
    *("id", "name", "lane", "tenant", "shard", "level", "state", "token", "worker_id", "lease_expires_ms"),
    *("failures", "added_at_ms", "priority_ms", "source_bytes", "spec"),
)
"""Columns against which reports and results are checked."""
HELD = f"state IN ({', '.join(repr(state.value) for state in HOLDING_STATES)})"
"""The jobs whose names are unique, by the condition of the partial index."""
HELD_MAX = 1000
"""Jobs of one worker that one poll compares with those named by the worker."""
EXHAUSTED_MAX = 32
"""Jobs without attempts left that one poll may park, beside those it may assign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollView:
    """A poll's snapshot, and the data needed to apply its decisions.

    ``plans`` are, by lane, the sources of planned jobs; ``unclaimable_job_count`` jobs do not count towards the queue
    limit, because no worker may take them; ``waits_for_time``: only a command lets command time advance.
    """

    snapshot: ScheduleSnapshot
    opening: PollOpening
    reported: Reported
    plans: dict[str, LanePlans]
    unclaimable_job_count: int
    waits_for_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """The jobs that a request names, its reports, and, by job name, the swaps of accepted results."""

    jobs: dict[str, Job] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    swaps: dict[str, Any] = field(default_factory=dict)

    def ending(self) -> list[Job]:
        """Return the jobs whose end is reported."""
        ends = {report.update.job for report in self.reports if report.update.status is not UpdateStatus.IN_PROGRESS}
        return [job for job in self.jobs.values() if job.name in ends and job.state == JobState.LEASED]

    def swaps_by_lane(self) -> dict[str, list[Any]]:
        """Return, by lane, the swaps that this poll may make."""
        leased = [self.jobs[name] for name in self.swaps if self.jobs[name].state == JobState.LEASED]
        return {lane: [self.swaps[job.name] for job in jobs] for lane, jobs in by_lane(leased).items()}


def token_codec() -> TokenCodec:
    """Return the codec with the keys of this installation."""
    return TokenCodec(settings.TOKEN_KEYS)


def read_poll(
    request: PollRequest,
    worker: Worker,
    credential: str,
    opening: PollOpening | None = None,
    reported: Reported | None = None,
) -> PollView:
    """Read the inputs of ``prepare`` for this request, except those that were read before."""
    opening = opening or open_poll()
    reported = reported or read_reported(request.updates, worker, credential)
    job_max = request.capacity if opening.has_work else 0
    assignable = _assignable(request, opening) if job_max else []
    held = _held_jobs(worker, request.last_serial)
    ending = [*reported.ending(), *(job for job in held if job.name not in reported.jobs)]
    plans = _read_plans(opening, job_max, ending)
    tenants = {(job.lane, job.tenant) for job in assignable}.union(*(plan.tenants() for plan in plans.values()))
    own = _own_limits(opening, tenants, [*reported.jobs.values(), *assignable])
    lane_views, tenant_views = read_shares(tenants, own)
    without_ended = without_ending(tenant_views, ending)
    queues: list[PlannedQueue] = []
    for plan in plans.values():
        queues += plan.plan(lane_views, without_ended)
    unclaimable = _unclaimable_job_count(opening) if job_max else 0
    snapshot = ScheduleSnapshot(
        now_ms=opening.time.now_ms,
        worker=worker.name,
        capacity=request.capacity,
        limits=schedule_limits(opening.limits),
        reports=reported.reports,
        reported={name: _job_view(job, own) for name, job in reported.jobs.items()},
        last_serial=request.last_serial,
        held=tuple(_job_view(job, own) for job in held),
        assignable=tuple(_job_view(job, own) for job in assignable),
        queues=tuple(queues),
        live_job_count=opening.live_job_count - unclaimable,
        lanes=lane_views,
        tenants=tenant_views,
        paused=opening.paused,
    )
    return PollView(
        snapshot=snapshot,
        opening=opening,
        reported=reported,
        plans=plans,
        unclaimable_job_count=unclaimable,
        waits_for_time=opening.time.is_held_back
        and (opening.live_job_count > 0 or any(lane.has_waiting_sources() for lane in lanes())),
    )


def read_reported(updates: Sequence[JobUpdate], worker: Worker, credential: str) -> Reported:
    """Read the jobs that a worker's request names, and validate its tokens and results."""
    if not updates:
        return Reported()
    jobs = {job.name: job for job in _reported_jobs(updates, worker)}
    reports, swaps = _read_reports(updates, jobs, worker, credential)
    return Reported(jobs=jobs, reports=reports, swaps=swaps)


def _read_plans(opening: PollOpening, job_max: int, ending: Sequence[Job]) -> dict[str, LanePlans]:
    """Return, by lane, the ready queues from which new jobs may be planned."""
    if not (job_max and opening.ready_lanes):
        return {}
    has_caps = opening.has_own_limits
    request = PlanRequest(
        job_max=job_max,
        now_ms=opening.time.now_ms,
        wall_ms=opening.time.wall_ms,
        paused=opening.paused,
        capped=capped_tenants(opening.time.now_ms, opening.ready_lanes, ending) if has_caps else CappedTenants(),
    )
    found = {name: lane_of(name).read_plans(request) for name in opening.ready_lanes}
    return {name: plans for name, plans in found.items() if plans is not None}


def _own_limits(opening: PollOpening, tenants: Collection[TenantKey], jobs: Sequence[Job]) -> EffectiveLimits:
    """Return the limits set for lanes, for these tenants, for these jobs and their tenants."""
    names = {tenant for _, tenant in tenants} | {job.tenant for job in jobs}
    if not (names and opening.has_own_limits):
        return opening.everywhere
    return effective_limits(opening.time.now_ms, tenants=names, jobs={job.name for job in jobs})


def _unclaimable_job_count(opening: PollOpening) -> int:
    """Return how many jobs on the schedule no worker may take now; read only when the queue is full."""
    is_full = 0 < opening.limits.queue_max <= opening.live_job_count
    if not (is_full and (opening.paused or opening.has_pins)):
        return 0
    return unclaimable_jobs(opening.paused, wall_ms=opening.time.wall_ms).count()


def _reported_jobs(updates: Sequence[JobUpdate], worker: Worker) -> list[Job]:
    named, values = among(Job, "name", {update.job for update in updates})
    rows = read_rows(Job, JOB_COLUMNS, f"WHERE {named} AND {HELD}", values)
    jobs = [as_instance(Job, JOB_COLUMNS, (*row[:-1], json.loads(row[-1]))) for row in rows]
    workers = {None: None, worker.id: worker}
    if others := {job.worker_id for job in jobs} - workers.keys():
        workers |= Worker.objects.in_bulk(others)
    for job in jobs:
        job.worker = workers[job.worker_id]
    return jobs


def _held_jobs(worker: Worker, last_serial: int) -> list[Job]:
    """Return the jobs that the worker holds under tokens up to ``last_serial``, sent only after a lost answer."""
    if not last_serial:
        return []
    held = Job.objects.filter(state=JobState.LEASED, worker=worker, token__lte=last_serial).select_related("worker")
    return list(held.order_by("id")[:HELD_MAX])


def _read_reports(
    updates: Sequence[JobUpdate], jobs: dict[str, Job], worker: Worker, credential: str
) -> tuple[tuple[Report, ...], dict[str, Any]]:
    """Validate tokens and results; return the reports and, for accepted results, their swaps."""
    codec = token_codec()
    tokens = [_decode(codec, update, credential) for update in updates]
    finished = [  # by a job's worker under its current token; results from others are not read
        Finished(job=job, result=update.result)
        if update.status is UpdateStatus.SUCCESS
        and (job := jobs.get(update.job)) is not None
        and (job.token, job.worker_id) == (token, worker.id)
        else None
        for update, token in zip(updates, tokens, strict=True)
    ]
    checked = check_results([one for one in finished if one is not None])
    reports: list[Report] = []
    for update, token, one in zip(updates, tokens, finished, strict=True):
        checked_result = None if one is None else checked[one.job.name]
        result = checked_result.result if isinstance(checked_result, Accepted) else None
        refusal = checked_result if isinstance(checked_result, FailureReason) else None
        reports.append(Report(update=update, token=token, result=result, refusal=refusal))
    return tuple(reports), {
        name: checked_result.swap for name, checked_result in checked.items() if isinstance(checked_result, Accepted)
    }


def _decode(codec: TokenCodec, update: JobUpdate, credential: str) -> int | None:
    try:
        return codec.decode(update.token, job=update.job, credential=credential)
    except InvalidToken:
        return None


def _assignable(request: PollRequest, opening: PollOpening) -> list[Job]:
    """Return the first waiting and the longest expired jobs; named jobs are not assigned, so as many more are read."""
    jobs = open_to(Job.objects.all(), worker=request.worker, build=request.build) if opening.has_pins else Job.objects
    count = request.capacity + len(request.updates)
    jobs = without_paused(jobs.all(), opening.paused, planning=False)
    found: list[Job] = []
    waiting = jobs.filter(state=JobState.WAITING)
    if opening.has_waiting:
        for lane in lanes():  # lane by lane, so that the query does not scan jobs of other lanes
            if not lane.plans_ahead:
                found += _first_waiting(waiting.filter(lane=lane.name), lane.name, opening, count)
    if opening.has_waiting_ahead:
        found += waiting_ahead(waiting, request.worker, opening, count)
    if opening.has_expired:
        expired = jobs.filter(state=JobState.LEASED, lease_expires_ms__lt=opening.time.now_ms)
        found += expired.order_by("lease_expires_ms").select_related("worker")[: count + EXHAUSTED_MAX]
    return found


def _first_waiting(waiting: QuerySet[Job], lane: str, opening: PollOpening, count: int) -> list[Job]:
    """Return the first jobs of a lane and, if more wait, the first of each of the tenants with the least virtual time.

    So many jobs of one tenant, requeued at once or held by its caps, do not hide those of others.
    """
    found = list(waiting.order_by("priority_ms", "name")[:count])
    if len(found) < count:
        return found
    there = {job.tenant for job in found}
    if opening.has_own_limits:
        there |= {tenant for _, tenant in capped_tenants(opening.time.now_ms, [lane]).full}
    shares = TenantShare.objects.filter(lane=lane).exclude(tenant__in=there)
    least_served = shares.filter(Exists(waiting.filter(tenant=OuterRef("tenant")))).order_by("virtual_time", "tenant")
    for tenant in least_served.values_list("tenant", flat=True)[:count]:
        found += waiting.filter(tenant=tenant).order_by("priority_ms", "name")[:1]
    return found


def _job_view(job: Job, own: EffectiveLimits) -> JobView:
    failures_max = own.value(LimitName.FAILURES_MAX, -1, lane=job.lane, tenant=job.tenant, job=job.name)
    return JobView(
        id=job.id,
        name=job.name,
        lane=job.lane,
        tenant=job.tenant,
        level=job.level,
        state=JobState(job.state),
        token=job.token,
        worker=job.worker.name if job.worker else "",
        lease_expires_ms=job.lease_expires_ms or 0,
        failures=job.failures,
        failures_max=None if failures_max < 0 else failures_max,
        added_at_ms=job.added_at_ms,
        priority_ms=job.priority_ms,
        size_bytes=job.source_bytes,
    )
