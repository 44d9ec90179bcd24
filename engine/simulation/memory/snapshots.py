"""Read the snapshot of a poll from the schedule in memory, as the web application does from its tables.

The cost is bounded by capacity and number of reports, whatever the size of the queues.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from engine.core.errors import LithifyError
from engine.core.fast_dataclasses import fast_constructor, fast_init
from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.lanes.profiles.plan.consolidation import plan_queues
from engine.lanes.profiles.plan.model import BlockQueue
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.fairness import LaneView, TenantView
from engine.schedule.model import JobState, JobView, Report, ScheduleSnapshot
from engine.schedule.pauses import is_paused
from engine.schedule.priority import job_priority_ms
from engine.schedule.queue_choice import QueueSums, choose_queues
from engine.simulation.memory.partial_batches import block_queue, with_partial_batches
from engine.simulation.memory.results import accept
from engine.simulation.memory.rows import LANE, MemoryJob, MemoryQueue, NewBlock, TenantRow
from engine.simulation.memory.schedule import MemorySchedule

EXHAUSTED_MAX = 32
"""Maximum faulty jobs that one poll may park, in addition to those it may assign."""
TENANTS_MAX = 64
"""Maximum tenants that one poll considers, whatever its capacity."""
snapshot_of, view_of = fast_constructor(ScheduleSnapshot), fast_constructor(JobView)


@fast_init
@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A report of a worker: the update, its token, and the result of a success."""

    update: JobUpdate
    token: int
    result: ProfileMergeResult | None = None
    plain: Report = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", Report(update=self.update, token=self.token))


@fast_init
@dataclass(frozen=True, slots=True)
class PollRequest:
    """A poll request of a simulated worker.

    ``plain`` holds its reports if all are progress reports. ``last_serial`` is the last command before the last answer
    that the worker received, if it has missed an answer since.
    """

    worker: str
    capacity: int
    reports: tuple[WorkerReport, ...] = ()
    last_serial: int = 0
    plain: tuple[Report, ...] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        runs = all(report.update.status is UpdateStatus.IN_PROGRESS for report in self.reports)
        object.__setattr__(self, "plain", tuple(report.plain for report in self.reports) if runs else None)


@dataclass(slots=True)
class PollView:
    """A poll's snapshot, the queues its jobs were planned from, and the valid results by job name."""

    snapshot: ScheduleSnapshot
    queues: tuple[BlockQueue, ...]
    replacements: dict[str, list[NewBlock]]
    waits_for_time: bool


def read_poll(schedule: MemorySchedule, request: PollRequest, *, ignores_tokens: bool = False) -> PollView:
    """Read the input of ``prepare``. ``ignores_tokens`` disables fencing, to test the checks."""
    time = schedule.clock.read(schedule.limits.lease_ms)
    now_ms = time.now_ms
    replacements: dict[str, list[NewBlock]] = {}
    reports: tuple[Report, ...] = ()
    reported: dict[str, JobView] = {}
    if request.reports:
        reported = _reported(schedule, request, ignores_tokens)
        if request.plain is not None and not ignores_tokens:
            reports = request.plain
        else:
            reports = tuple(
                [_report(schedule, report, reported, replacements, ignores_tokens) for report in request.reports]
            )
    assignable: tuple[JobView, ...] = ()
    queues: tuple[BlockQueue, ...] = ()
    lanes: tuple[LaneView, ...] = ()
    tenants: tuple[TenantView, ...] = ()
    if request.capacity > 0:
        least_served = _least_served(schedule, request, reported, now_ms)
        assignable = tuple(_assignable(schedule, now_ms, request.capacity + len(request.reports)))
        tenants = tuple([_tenant_view(schedule.queues.tenant(name)) for name in _owners(least_served, assignable)])
        lanes = (schedule.lane,) if tenants else ()
        queues = tuple(_ready_queues(schedule, least_served, (lanes, tenants), now_ms, request.capacity))
        if any(queue.policy.partial_batch_bytes for queue in queues):
            queues = with_partial_batches(schedule.queues, queues, now_ms=now_ms)
    snapshot = snapshot_of(
        now_ms=now_ms,
        worker=request.worker,
        capacity=request.capacity,
        limits=schedule.limits,
        reports=reports,
        reported=reported,
        last_serial=request.last_serial,
        held=_held(schedule, request) if request.last_serial else (),
        assignable=assignable,
        queues=plan_queues(queues, now_ms=now_ms, job_max=request.capacity),
        live_job_count=schedule.live_job_count,
        lanes=lanes,
        tenants=tenants,
        paused=schedule.paused,
    )
    is_waiting = time.is_held_back and (schedule.live_job_count > 0 or schedule.queues.block_count > 0)
    return PollView(snapshot, queues, replacements, is_waiting)


def _held(schedule: MemorySchedule, request: PollRequest) -> tuple[JobView, ...]:
    """Return the jobs leased to the worker up to the last answer it received; needed after a lost answer only."""
    jobs = schedule.jobs.values()
    return tuple(
        [
            job_view(job)
            for job in jobs
            if job.state is JobState.LEASED and job.worker == request.worker and job.token <= request.last_serial
        ]
    )


def job_view(job: MemoryJob, worker: str | None = None) -> JobView:
    """Return a job in the scheduler's form."""
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


def _reported(schedule: MemorySchedule, request: PollRequest, ignores_tokens: bool) -> dict[str, JobView]:
    worker = request.worker if ignores_tokens else None
    jobs, found = schedule.jobs, {}
    for report in request.reports:
        job = jobs.get(report.update.job)
        if job is not None:
            found[job.name] = job_view(job, worker)
    return found


def _report(
    schedule: MemorySchedule,
    report: WorkerReport,
    reported: dict[str, JobView],
    replacements: dict[str, list[NewBlock]],
    ignores_tokens: bool,
) -> Report:
    if report.result is None and not ignores_tokens:
        return report.plain
    view = reported.get(report.update.job)
    token = view.token if ignores_tokens and view else report.token
    if report.update.status is not UpdateStatus.SUCCESS or view is None or view.token != token:
        return Report(update=report.update, token=token)
    try:
        assert report.result is not None, "a success without a result"
        replacements[view.name] = accept(schedule.jobs[view.name], report.result)
    except LithifyError as error:
        refusal = FailureReason(error_class=type(error).__name__, message=str(error))
        return Report(update=report.update, token=token, refusal=refusal)
    return Report(update=report.update, token=token, result=report.result)


def _least_served(
    schedule: MemorySchedule, request: PollRequest, reported: dict[str, JobView], now_ms: int
) -> list[TenantRow]:
    """Return the tenants whose queues are read: those below their caps, smallest virtual time first."""
    count = min(request.capacity, TENANTS_MAX)
    if not schedule.is_special:
        return list(schedule.queues.needy_tenants(now_ms, count))
    ends = {report.update.job for report in request.reports if report.update.status is not UpdateStatus.IN_PROGRESS}
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
    """Yield the jobs that are not paused."""
    return (job for job in jobs if not is_paused(schedule.paused, lane=LANE, tenant=job.tenant, level=job.level))


def _ready_queues(
    schedule: MemorySchedule,
    least_served: Sequence[TenantRow],
    shares: tuple[Sequence[LaneView], Sequence[TenantView]],
    now_ms: int,
    capacity: int,
) -> Iterator[BlockQueue]:
    """Choose among the first ready queues of the tenants as the shipped code does."""
    each = 2 * capacity // max(1, len(least_served)) + 1
    book = schedule.queues
    if schedule.is_special:
        every = len(book.by_id)
        whole = (
            (queue for queue in book.ready_queues(row, now_ms, every) if _may_plan(schedule, queue))
            for row in least_served
        )
        ready = [queue for queues in whole for queue in islice(queues, each)]
    else:
        ready = [queue for row in least_served for queue in book.ready_queues(row, now_ms, each)]
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


def _owners(least_served: Sequence[TenantRow], assignable: Sequence[JobView]) -> list[str]:
    return sorted({row.tenant for row in least_served} | {job.tenant for job in assignable})
