"""Reads from the schedule in memory what one poll's decisions rest on: the counterpart of the web application's view.

The only place that knows both the rows in memory and what ``prepare`` looks at. Its cost is bounded by capacity and
reports, whatever waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from engine.core.errors import LithifyError
from engine.core.quick_values import maker, quickly_built
from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.fairness import LaneView, TenantView
from engine.schedule.model import JobState, JobView, Report, ScheduleSnapshot
from engine.schedule.pauses import is_paused
from engine.schedule.priority import job_priority_ms
from engine.schedule.queue_choice import QueueSums, choose_queues
from engine.simulation.memory_schedule import MemorySchedule
from engine.simulation.remnants import block_queue, with_remnants
from engine.simulation.results import accept
from engine.simulation.rows import LANE, MemoryJob, MemoryQueue, NewBlock, TenantRow

EXHAUSTED_MAX = 32
"""Jobs without a run left that one poll may park, beside those it may assign."""
TENANTS_MAX = 64
"""Tenants that one poll looks at, however much it could take."""
snapshot_of, view_of = maker(ScheduleSnapshot), maker(JobView)


@quickly_built
@dataclass(frozen=True, slots=True)
class Told:
    """A report as a worker sends it: the update, the token it was given, and the result of a success."""

    update: JobUpdate
    token: int
    result: ProfileMergeResult | None = None
    plain: Report = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", Report(update=self.update, token=self.token))


@quickly_built
@dataclass(frozen=True, slots=True)
class PollOrder:
    """A poll of a simulated worker. ``plain`` are its reports as they stand, if all say that a job still runs;
    ``heard`` is the last command before the last answer that it got, if it has missed one since."""

    worker: str
    capacity: int
    told: tuple[Told, ...] = ()
    heard: int = 0
    plain: tuple[Report, ...] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        runs = all(told.update.status is UpdateStatus.IN_PROGRESS for told in self.told)
        object.__setattr__(self, "plain", tuple(told.plain for told in self.told) if runs else None)


@dataclass(slots=True)
class PollView:
    """A poll's snapshot, the queues that its jobs were planned from, and the results that fit by job name."""

    snapshot: ScheduleSnapshot
    queues: tuple[BlockQueue, ...]
    replacements: dict[str, list[NewBlock]]
    waits_for_time: bool


def read_poll(schedule: MemorySchedule, order: PollOrder, *, ignores_tokens: bool = False) -> PollView:
    """Read everything that ``prepare`` may look at. ``ignores_tokens`` is the fence broken on purpose."""
    time = schedule.clock.read(schedule.limits.lease_ms)
    now_ms = time.now_ms
    replacements: dict[str, list[NewBlock]] = {}
    reports: tuple[Report, ...] = ()
    reported: dict[str, JobView] = {}
    if order.told:
        reported = _reported(schedule, order, ignores_tokens)
        if order.plain is not None and not ignores_tokens:
            reports = order.plain
        else:
            reports = tuple([_report(schedule, told, reported, replacements, ignores_tokens) for told in order.told])
    assignable: tuple[JobView, ...] = ()
    queues: tuple[BlockQueue, ...] = ()
    lanes: tuple[LaneView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    if order.capacity > 0:
        needy = _needy(schedule, order, reported, now_ms)
        assignable = tuple(_assignable(schedule, now_ms, order.capacity + len(order.told)))
        tenants = tuple([_tenant_view(schedule.queues.tenant(name)) for name in _owners(needy, assignable)])
        lanes = (schedule.lane,) if tenants else ()
        queues = tuple(_ready_queues(schedule, needy, (lanes, tenants), now_ms, order.capacity))
        if any(queue.policy.remnant_bytes for queue in queues):
            queues = with_remnants(schedule.queues, queues, now_ms=now_ms)
    snapshot = snapshot_of(
        now_ms=now_ms,
        worker=order.worker,
        capacity=order.capacity,
        limits=schedule.limits,
        reports=reports,
        reported=reported,
        heard=order.heard,
        held=_held(schedule, order) if order.heard else (),
        assignable=assignable,
        queues=plan_queues(queues, now_ms=now_ms, job_max=order.capacity),
        live_job_count=schedule.live_job_count,
        lanes=lanes,
        tenants=tenants,
        paused=schedule.paused,
    )
    is_waiting = time.is_held_back and (schedule.live_job_count > 0 or schedule.queues.block_count > 0)
    return PollView(snapshot, queues, replacements, is_waiting)


def _held(schedule: MemorySchedule, order: PollOrder) -> tuple[JobView, ...]:
    """Return what the worker should know that it has; it only asks after an answer was lost."""
    jobs = schedule.jobs.values()
    return tuple(
        [
            job_view(job)
            for job in jobs
            if job.state is JobState.LEASED and job.worker == order.worker and job.token <= order.heard
        ]
    )


def job_view(job: MemoryJob, worker: str | None = None) -> JobView:
    """Return a job as the scheduler sees it."""
    return view_of(
        id=job.id,
        name=job.name,
        lane=LANE,
        level=job.level,
        state=job.state,
        tenant=job.tenant,
        token=job.token,
        worker=job.worker if worker is None else worker,
        lease_expires_ms=job.lease_expires_ms,
        failures=job.failures,
        failures_max=job.failures_max,
        added_at_ms=job.added_at_ms,
        priority_ms=job.priority_ms,
        size_bytes=job.size_bytes,
    )


def _reported(schedule: MemorySchedule, order: PollOrder, ignores_tokens: bool) -> dict[str, JobView]:
    worker = order.worker if ignores_tokens else None
    jobs, found = schedule.jobs, {}
    for told in order.told:
        job = jobs.get(told.update.job)
        if job is not None:
            found[job.name] = job_view(job, worker)
    return found


def _report(
    schedule: MemorySchedule,
    told: Told,
    reported: dict[str, JobView],
    replacements: dict[str, list[NewBlock]],
    ignores_tokens: bool,
) -> Report:
    if told.result is None and not ignores_tokens:
        return told.plain
    view = reported.get(told.update.job)
    token = view.token if ignores_tokens and view else told.token
    if told.update.status is not UpdateStatus.SUCCESS or view is None or view.token != token:
        return Report(update=told.update, token=token)
    try:
        assert told.result is not None, "a success without a result"
        replacements[view.name] = accept(schedule.jobs[view.name], told.result)
    except LithifyError as error:
        refusal = FailureReason(error_class=type(error).__name__, message=str(error))
        return Report(update=told.update, token=token, refusal=refusal)
    return Report(update=told.update, token=token, result=told.result)


def _needy(schedule: MemorySchedule, order: PollOrder, reported: dict[str, JobView], now_ms: int) -> list[TenantRow]:
    """Return the tenants whose queues are looked at: those that may have one more job, the neediest first."""
    count = min(order.capacity, TENANTS_MAX)
    if not schedule.is_special:
        return list(schedule.queues.needy_tenants(now_ms, count))
    ends = {told.update.job for told in order.told if told.update.status is not UpdateStatus.IN_PROGRESS}
    ending = [job.tenant for job in reported.values() if job.name in ends and job.state is JobState.LEASED]
    rows = schedule.queues.needy_tenants(now_ms, len(schedule.queues.tenants))
    return list(islice((row for row in rows if _may_have_more(schedule, row, ending.count(row.tenant))), count))


def _may_have_more(schedule: MemorySchedule, row: TenantRow, ending: int) -> bool:
    is_full = 0 < row.running_max <= row.running_count - ending
    return not is_full and any(_may_plan(schedule, schedule.queues.by_id[number]) for _, number in row.queues)


def _may_plan(schedule: MemorySchedule, queue: MemoryQueue) -> bool:
    return not is_paused(schedule.paused, lane=LANE, tenant=queue.tenant, level=queue.level, planning=True)


def _assignable(schedule: MemorySchedule, now_ms: int, count: int) -> Iterator[JobView]:
    waiting: Iterable[MemoryJob] = (schedule.jobs[name] for _, name in schedule.queues.waiting)
    expired: Iterable[MemoryJob] = schedule.leases.expired(now_ms)
    if schedule.paused:
        waiting, expired = (_going(schedule, jobs) for jobs in (waiting, expired))
    for job in islice(waiting, count):
        yield job_view(job)
    for job in islice(expired, count + EXHAUSTED_MAX):
        yield job_view(job)


def _going(schedule: MemorySchedule, jobs: Iterable[MemoryJob]) -> Iterator[MemoryJob]:
    """Leave out what stands still."""
    return (job for job in jobs if not is_paused(schedule.paused, lane=LANE, tenant=job.tenant, level=job.level))


def _ready_queues(
    schedule: MemorySchedule,
    needy: Sequence[TenantRow],
    shares: tuple[Sequence[LaneView], Sequence[TenantView]],
    now_ms: int,
    capacity: int,
) -> Iterator[BlockQueue]:
    """Choose among the first ready queues of the neediest tenants as the shipped view does."""
    each = 2 * capacity // max(1, len(needy)) + 1
    book = schedule.queues
    if schedule.is_special:
        every = len(book.by_id)
        whole = (
            (queue for queue in book.ready_queues(row, now_ms, every) if _may_plan(schedule, queue)) for row in needy
        )
        ready = [queue for queues in whole for queue in islice(queues, each)]
    else:
        ready = [queue for row in needy for queue in book.ready_queues(row, now_ms, each)]
    if not ready:
        return
    sums = [_sums(queue) for queue in ready]
    chosen = choose_queues(sums, lanes=shares[0], tenants=shares[1], now_ms=now_ms, job_max=capacity)
    for queue in ready:
        if queue.id in chosen:
            yield block_queue(queue, chosen[queue.id] * queue.policy.blocks_max)


def _sums(queue: MemoryQueue) -> QueueSums:
    policy, block_count = queue.policy, len(queue.entries)
    assert queue.place_ms is not None, "a ready queue has blocks"
    size = queue.byte_count * min(block_count, policy.blocks_max) // block_count
    size = min(size, policy.bytes_max) if policy.bytes_max else size
    return QueueSums(
        id=queue.id,
        lane=LANE,
        tenant=queue.tenant,
        priority_ms=job_priority_ms(ready_at_ms=queue.place_ms, size_bytes=size),
        job_count=max(1, block_count // policy.blocks_max),
        job_bytes=size,
    )


def _tenant_view(row: TenantRow) -> TenantView:
    return TenantView(
        lane=LANE,
        tenant=row.tenant,
        weight=row.weight,
        virtual_time=row.virtual_time,
        running_count=row.running_count,
        running_max=row.running_max,
    )


def _owners(needy: Sequence[TenantRow], assignable: Sequence[JobView]) -> list[str]:
    return sorted({row.tenant for row in needy} | {job.tenant for job in assignable})
