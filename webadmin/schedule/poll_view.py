"""Reads what one poll's decisions rest on. The number of queries and rows is bounded by capacity and reports alone.

Nothing here is locked: whoever applies the decisions checks again what they rest on.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef, QuerySet

from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.protocol.errors import InvalidToken
from engine.protocol.messages import FailureReason, JobUpdate, PollRequest, UpdateStatus
from engine.protocol.tokens import TokenCodec
from engine.schedule.limits import EffectiveLimits, LimitName
from engine.schedule.model import HOLDING_STATES, JobState, JobView, Report, ScheduleSnapshot
from webadmin.base.database.dialect import among, as_instance, read_rows
from webadmin.schedule.command_log import CommandTime
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.hindrances import nobodys_jobs
from webadmin.schedule.kept_out import without_outdated
from webadmin.schedule.lanes import Accepted, Finished, by_lane, check_results, lanes
from webadmin.schedule.level_policies import LevelPolicies
from webadmin.schedule.models import Job, LevelQueue, Limits, Worker
from webadmin.schedule.pins import open_to
from webadmin.schedule.planning_view import (
    PlanningRules,
    QueueFront,
    ReadyQueues,
    TenantKey,
    ask_rules,
    capped_tenants,
    read_blocks,
    read_ready,
    read_shares,
    without_ending,
    without_paused,
)
from webadmin.schedule.poll_opening import PollOpening, open_poll
from webadmin.schedule.queries import effective_limits, schedule_limits
from webadmin.schedule.remnant_view import with_remnants
from webadmin.schedule.waiting_ahead import waiting_ahead

JOB_COLUMNS = (
    *("id", "name", "lane", "tenant", "shard", "level", "state", "token", "worker_id", "lease_expires_ms"),
    *("failures", "added_at_ms", "priority_ms", "source_bytes", "spec"),
)
"""What reports and results are checked against; what else a job's row holds is left to itself."""
HELD = f"state IN ({', '.join(repr(state.value) for state in HOLDING_STATES)})"
"""The jobs whose names are unique, in the words of their partial index."""
HELD_MAX = 1000
"""Jobs of one worker that one poll compares with what the worker names."""
EXHAUSTED_MAX = 32
"""Jobs without a run left that one poll may park, beside those it may assign."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollView:
    """A poll's snapshot, and what applying its decisions needs besides. ``resting`` are queues, by row id, that hold
    nothing but what is dropped soon; ``nobodys_count`` jobs hold no place, because nobody may take them."""

    snapshot: ScheduleSnapshot
    time: CommandTime
    limits: Limits
    policies: LevelPolicies
    swaps: dict[str, Any]
    ready: ReadyQueues
    fronts: tuple[QueueFront, ...]
    resting: tuple[int, ...]
    nobodys_count: int
    waits_for_time: bool
    last_index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a request says of jobs: those it names, its reports, and, by job name, the swaps of results that fit."""

    jobs: dict[str, Job] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    swaps: dict[str, Any] = field(default_factory=dict)

    def ending(self) -> list[Job]:
        """Return the jobs whose end is reported."""
        ends = {report.update.job for report in self.reports if report.update.status is not UpdateStatus.IN_PROGRESS}
        return [job for job in self.jobs.values() if job.name in ends and job.state == JobState.LEASED]

    def only_finished(self) -> Reported:
        """Return this with no other reports than those of results that fit."""
        reports = tuple(report for report in self.reports if report.result is not None)
        return replace(self, reports=reports)

    def without(self, done: Iterable[str]) -> Reported:
        """Return what there is to say once these jobs are done: their reports count no more."""
        names = frozenset(done)
        return Reported(
            jobs={name: job for name, job in self.jobs.items() if name not in names},
            reports=tuple(replace(one, result=None) if one.update.job in names else one for one in self.reports),
            swaps={name: swap for name, swap in self.swaps.items() if name not in names},
        )

    def coming(self) -> dict[str, list[Any]]:
        """Return, by lane, the swaps that may be made by this poll."""
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
    rules: PlanningRules | None = None,
) -> PollView:
    """Read everything that ``prepare`` may look at for this request, but what was read before."""
    opening = opening or open_poll()
    reported = reported or read_reported(request.updates, worker, credential)
    time, jobs = opening.time, reported.jobs
    job_max = request.capacity if opening.has_work else 0
    if rules is None and (job_max or reported.swaps):
        rules = ask_rules(job_max)(opening)
    rules = rules or PlanningRules(policies=LevelPolicies(has_others=opening.has_own_policies))
    assignable = _assignable(request, opening) if job_max else []
    held = _held_jobs(worker, request.heard)
    ending = [*reported.ending(), *(job for job in held if job.name not in jobs)]
    ready = read_ready(opening, rules, job_max=job_max, ending=ending)
    tenants = ready.tenants() | {(job.lane, job.tenant) for job in assignable}
    own = _own_limits(opening, tenants, [*jobs.values(), *assignable])
    lanes, shares = read_shares(tenants, ready, own)
    fronts = read_blocks(
        ready.queues, rules.policies, (lanes, without_ending(shares, ending)), now_ms=time.now_ms, job_max=job_max
    )
    fronts, resting = without_outdated(fronts, wall_ms=time.wall_ms)
    nobodys = _nobodys_count(opening) if job_max else 0
    snapshot = ScheduleSnapshot(
        now_ms=time.now_ms,
        worker=worker.name,
        capacity=request.capacity,
        limits=schedule_limits(opening.limits),
        reports=reported.reports,
        reported={name: _job_view(job, own) for name, job in jobs.items()},
        heard=request.heard,
        held=tuple(_job_view(job, own) for job in held),
        assignable=tuple(_job_view(job, own) for job in assignable),
        queues=plan_queues(
            with_remnants([front.to_plan() for front in fronts], now_ms=time.now_ms),
            now_ms=time.now_ms,
            job_max=job_max,
        ),
        live_job_count=opening.live_job_count - nobodys,
        lanes=lanes,
        tenants=shares,
        paused=opening.paused,
    )
    return PollView(
        snapshot=snapshot,
        time=time,
        limits=opening.limits,
        policies=rules.policies,
        swaps=reported.swaps,
        ready=ready,
        fronts=fronts,
        resting=resting,
        nobodys_count=nobodys,
        waits_for_time=time.is_held_back and (opening.live_job_count > 0 or _any_block_waits()),
        last_index=opening.last_index,
    )


def read_reported(updates: Sequence[JobUpdate], worker: Worker, credential: str) -> Reported:
    """Read the jobs that a worker's request speaks of, and check its tokens and results. Needs nobody's turn."""
    if not updates:
        return Reported()
    jobs = {job.name: job for job in _reported_jobs(updates, worker)}
    reports, swaps = _read_reports(updates, jobs, worker, credential)
    return Reported(jobs=jobs, reports=reports, swaps=swaps)


def _own_limits(opening: PollOpening, tenants: Collection[TenantKey], jobs: Sequence[Job]) -> EffectiveLimits:
    """Return the limits set for lanes, for these tenants, for these jobs and their tenants."""
    names = {tenant for _, tenant in tenants} | {job.tenant for job in jobs}
    if not (names and opening.has_own_limits):
        return opening.everywhere
    return effective_limits(opening.time.now_ms, tenants=names, jobs={job.name for job in jobs})


def _nobodys_count(opening: PollOpening) -> int:
    """Return how many jobs fill the schedule that nobody may take now; asked only where it is full."""
    is_full = 0 < opening.limits.queue_max <= opening.live_job_count
    if not (is_full and (opening.paused or opening.has_pins)):
        return 0
    return nobodys_jobs(opening.paused, wall_ms=opening.time.wall_ms).count()


def _any_block_waits() -> bool:
    return LevelQueue.objects.filter(block_count__gt=0).exists()


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


def _held_jobs(worker: Worker, heard: int) -> list[Job]:
    """Return what the worker should know that it has. It only asks after an answer was lost."""
    if not heard:
        return []
    held = Job.objects.filter(state=JobState.LEASED, worker=worker, token__lte=heard).select_related("worker")
    return list(held.order_by("id")[:HELD_MAX])


def _read_reports(
    updates: Sequence[JobUpdate], jobs: dict[str, Job], worker: Worker, credential: str
) -> tuple[tuple[Report, ...], dict[str, Any]]:
    """Check tokens and results; return the reports and, for results that fit, their swaps."""
    codec = token_codec()
    tokens = [_decode(codec, update, credential) for update in updates]
    finished = [  # by a job's worker under its current token; what others say of its result is not even read
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
        told = None if one is None else checked[one.job.name]
        result = told.result if isinstance(told, Accepted) else None
        refusal = told if isinstance(told, FailureReason) else None
        reports.append(Report(update=update, token=token, result=result, refusal=refusal))
    return tuple(reports), {name: told.swap for name, told in checked.items() if isinstance(told, Accepted)}


def _decode(codec: TokenCodec, update: JobUpdate, credential: str) -> int | None:
    try:
        return codec.decode(update.token, job=update.job, credential=credential)
    except InvalidToken:
        return None


def _assignable(request: PollRequest, opening: PollOpening) -> list[Job]:
    """Return the first jobs that wait, and the longest expired; named jobs are not assigned, so that many more."""
    jobs = open_to(Job.objects.all(), worker=request.worker, build=request.build) if opening.has_pins else Job.objects
    count = request.capacity + len(request.updates)
    jobs = without_paused(jobs.all(), opening.paused, planning=False)
    found: list[Job] = []
    waiting = jobs.filter(state=JobState.WAITING)
    if opening.has_waiting:
        for lane in lanes():  # one by one: jobs of the others, however many, are not even passed over
            if not lane.plans_ahead:
                found += _first_waiting(waiting.filter(lane=lane.name), lane.name, opening, count)
    if opening.has_waiting_ahead:
        found += waiting_ahead(waiting, request.worker, opening, count)
    if opening.has_expired:
        expired = jobs.filter(state=JobState.LEASED, lease_expires_ms__lt=opening.time.now_ms)
        found += expired.order_by("lease_expires_ms").select_related("worker")[: count + EXHAUSTED_MAX]
    return found


def _first_waiting(waiting: QuerySet[Job], lane: str, opening: PollOpening, count: int) -> list[Job]:
    """Return the first jobs of a lane and, if more wait, the first of each of the neediest other tenants.

    So many jobs of one tenant, put back at once or held by its caps, do not hide those of others.
    """
    found = list(waiting.order_by("priority_ms", "name")[:count])
    if len(found) < count:
        return found
    there = {job.tenant for job in found}
    if opening.has_own_limits:
        there |= {tenant for _, tenant in capped_tenants(opening.time.now_ms, [lane]).full}
    shares = TenantShare.objects.filter(lane=lane).exclude(tenant__in=there)
    needy = shares.filter(Exists(waiting.filter(tenant=OuterRef("tenant")))).order_by("virtual_time", "tenant")
    for tenant in needy.values_list("tenant", flat=True)[:count]:
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
