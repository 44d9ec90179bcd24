"""The scheduler of the ``reference`` policy: the rules of the system that inspired the lane, its weaknesses included.

Kept for comparison and for the scenarios that its own tests pin (``tests/scenarios``). It differs from the default
policy in what an operator would notice: levels in strict order, jobs of a level in the order of a hash; a job is
planned in one poll and assigned in a later one; only above the queue limit is a faulty job evicted, and only from the
head of a level. Fencing is the stricter one of ours under both policies (rows S28 and S29 of the sheet are not
imitated), and so is the capacity: a report that does not count earns none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.lanes.profiles.plan.model import BlockQueue, LevelPolicy
from engine.schedule.model import (
    AssignJob,
    AttemptOutcome,
    ChangeSet,
    CreateJob,
    JobState,
    JobView,
    ReturnJob,
    ScheduleLimits,
    ScheduleSnapshot,
)
from engine.schedule.pauses import is_paused
from engine.schedule.reports import settle_reports
from tests.reference_policy.block_queue import ReferenceQueue
from tests.reference_policy.job_queue import JobQueue
from tests.reference_policy.plan import ReferencePlan

EVICTED = "evicted: the queue was over its limit and the job had failed too often"

WAITING, LEASED = 0, 1
"""Stored status in the order of the queue: who waits comes before who runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A job given out, and its new failure count."""

    job: JobView
    failures: int


class ReferenceSchedule:
    """The procedures on one poll's private copy of the queue. ``touched`` are the jobs that the request names."""

    def __init__(
        self,
        jobs: Iterable[JobView],
        *,
        limits: ScheduleLimits,
        now_ms: int,
        touched: Iterable[str] = (),
        size: int | None = None,
    ) -> None:
        """``size`` is the number of live jobs if there are others than those given."""
        self._jobs = {job.name: job for job in jobs}
        self._queue = JobQueue()
        for job in self._jobs.values():
            status = WAITING if job.state is JobState.WAITING else LEASED
            self._queue.put(
                job.name, level=job.level, status=status, failures=job.failures, expires_ms=job.lease_expires_ms
            )
        self._limits = limits
        self._now_ms = now_ms
        self._touched = set(touched)
        self._size = len(self._jobs) if size is None else size
        self._evicted = 0
        self._added = 0

    def assign(self) -> Assignment | None:
        """Give out the next job: one that waits, or whose lease is over. A faulty one ends the search at its level."""
        for level in self._queue.levels():
            while (name := self._queue.pop(level)) is not None:
                job = self._jobs[name]
                if name in self._touched:
                    continue
                if job.state is JobState.WAITING:
                    return Assignment(job=job, failures=job.failures)
                if job.is_exhausted(self._limits):
                    self._put_back(job)
                    break
                if job.has_expired(self._now_ms):
                    return Assignment(job=job, failures=job.failures + 1)
        return None

    def evict(self) -> JobView | None:
        """Take the first faulty job that is the head of its level out, if the queue is over its limit."""
        if not 0 < self._limits.queue_max < self._size - self._evicted:
            return None
        for level in self._queue.levels():
            name = self._queue.peek(level)
            if name is not None and self._jobs[name].is_exhausted(self._limits):
                self._queue.delete(name)
                self._evicted += 1
                return self._jobs[name]
        return None

    def add(self) -> bool:
        """Say whether one more job fits, and count it; planned evictions make no room."""
        if 0 < self._limits.queue_max <= self._size + self._added:
            return False
        self._added += 1
        return True

    def _put_back(self, job: JobView) -> None:
        self._queue.put(
            job.name, level=job.level, status=LEASED, failures=job.failures, expires_ms=job.lease_expires_ms
        )


def prepare_reference(snapshot: ScheduleSnapshot, queues: Sequence[BlockQueue]) -> ChangeSet:
    """Return what this poll changes under the ``reference`` policy: assignments first, then evictions and new jobs."""
    renewed, completed, returned = settle_reports(snapshot)
    ended = {done.job.name for done in completed} | {back.job.name for back in returned}
    schedule = ReferenceSchedule(
        (job for job in snapshot.assignable if job.name not in ended and not _stands_still(snapshot, job)),
        limits=snapshot.limits,
        now_ms=snapshot.now_ms,
        touched=[report.update.job for report in snapshot.reports],
        size=snapshot.live_job_count,
    )
    assigned: list[AssignJob] = []
    while len(assigned) < snapshot.capacity and (given := schedule.assign()) is not None:
        assigned.append(AssignJob(job=given.job, failures=given.failures))
    evicted, created = _plan(snapshot, queues, schedule)
    return ChangeSet(
        renewed=tuple(renewed),
        completed=tuple(completed),
        returned=(*returned, *(_evicted(job) for job in evicted)),
        assigned=tuple(assigned),
        created=tuple(created),
    )


def _plan(
    snapshot: ScheduleSnapshot, queues: Sequence[BlockQueue], schedule: ReferenceSchedule
) -> tuple[list[JobView], list[CreateJob]]:
    """Evict at most one job and plan at most one, as often as the worker has room."""
    queue_ids = {queue.key(): queue.id for queue in queues}
    queue, policies = _restore(snapshot, queues)
    plan = ReferencePlan(queue, policies=policies, now_ms=snapshot.now_ms)
    evicted: list[JobView] = []
    created: list[CreateJob] = []
    for _ in range(snapshot.capacity):
        if (job := schedule.evict()) is not None:
            evicted.append(job)
        planned = plan.next_job()
        if planned is None or not schedule.add():
            break
        key = (planned.lane, planned.tenant, planned.shard, planned.level)
        created.append(CreateJob(plan=replace(planned, queue_id=queue_ids[key])))
    return evicted, created


def _restore(snapshot: ScheduleSnapshot, queues: Sequence[BlockQueue]) -> tuple[ReferenceQueue, dict[int, LevelPolicy]]:
    """Push the snapshot's blocks again in the order of their arrival, as a restart does.

    This policy knows one rule per level: where tenants have their own, that of the first queue by key.
    """
    queues = [queue for queue in queues if not _stands_still(snapshot, queue)]
    policies = {queue.level: queue.policy for queue in sorted(queues, key=BlockQueue.key, reverse=True)}
    rows = [(block.arrived_at_ms, block.ulid, queue.key(), block) for queue in queues for block in queue.blocks]
    restored = ReferenceQueue(policies)
    for _, _, key, block in sorted(rows, key=lambda row: row[:3]):
        restored.push(key, block)
    return restored, policies


def _stands_still(snapshot: ScheduleSnapshot, place: JobView | BlockQueue) -> bool:
    is_planning = isinstance(place, BlockQueue)
    return is_paused(snapshot.paused, lane=place.lane, tenant=place.tenant, level=place.level, planning=is_planning)


def _evicted(job: JobView) -> ReturnJob:
    return ReturnJob(job=job, outcome=AttemptOutcome.EXPIRED, failures=job.failures, parked_reason=EVICTED)
