"""The schedule and the index in memory: apply change sets as the web application does, with the same validation.

Contract tests compare it with the tables, and simulations run on it. A command is atomic: its preconditions are checked
before any change. ``version`` counts changes; ``touched_blocks`` and ``touched_jobs`` collect the rows changed since
they were last cleared, so the cost of a check depends on the size of the step only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.errors import LithifyError
from engine.core.fast_dataclasses import fast_constructor, fast_init
from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.plan.model import LevelPolicy, PlannedJob, QueuedBlock
from engine.schedule.fairness import LaneView
from engine.schedule.model import (
    AttemptOutcome,
    ChangeSet,
    CompleteJob,
    CreateJob,
    JobState,
    JobView,
    ParkedKind,
    RenewLease,
    ReturnJob,
    ScheduleLimits,
)
from engine.schedule.pauses import PausedScope
from engine.schedule.priority import job_priority_ms
from engine.simulation.memory.command_clock import CommandClock, CommandTime
from engine.simulation.memory.deletion_queue import DeletionQueue
from engine.simulation.memory.id_book import IdBook
from engine.simulation.memory.lease_book import LeaseBook
from engine.simulation.memory.queues import QueueBook
from engine.simulation.memory.results import masks_about
from engine.simulation.memory.rows import (
    FINAL_LEVEL,
    LANE,
    BlockState,
    MemoryBlock,
    MemoryJob,
    MemoryQueue,
    NewBlock,
    Removal,
    Tombstone,
)

# Attribute access on an enum class is ten times slower than a global name, and every event does it.
LEASED, QUEUED, OWNED = JobState.LEASED, BlockState.QUEUED, BlockState.OWNED
FINAL, REPLACED, DROPPED = BlockState.FINAL, BlockState.REPLACED, BlockState.DROPPED
queued_block = fast_constructor(QueuedBlock)


class StaleSnapshot(LithifyError):
    """The state that a change set was prepared from has changed; prepare it again."""

    code = "stale_snapshot"


@fast_init
@dataclass(frozen=True, slots=True)
class AddOutcome:
    """The outcome of the blocks of a batch, by id."""

    accepted: tuple[str, ...]
    duplicates: tuple[str, ...]
    conflicting: tuple[str, ...]


@fast_init
@dataclass(frozen=True, slots=True)
class Applied:
    """A command that was applied; its index is the token of the jobs in ``assigned``."""

    index: int
    now_ms: int
    assigned: tuple[MemoryJob, ...]


Replacements = Mapping[str, Sequence[NewBlock]]
"""The results of completed jobs by job name."""


@dataclass(slots=True)
class Counters:
    """Totals of jobs of one level."""

    created: int = 0
    completed: int = 0
    parked: int = 0
    unparked: int = 0
    dissolved: int = 0


@dataclass(slots=True)
class Command:
    """An entry of the command log; kept only with ``keeps_log``."""

    kind: str
    wall_ms: int
    arguments: tuple[Any, ...]


@dataclass(eq=False)
class MemorySchedule:
    """All rows. ``keeps_log`` keeps every command and every replaced block, for replays and exact checks."""

    limits: ScheduleLimits
    policies: Mapping[int, LevelPolicy]
    cleanup_delay_ms: int
    clock: CommandClock
    keeps_log: bool = True
    refuses_known: bool = True
    trusts_late_results: bool = False
    version: int = 0
    last_index: int = 0
    live_job_count: int = 0
    parked_count: int = 0
    blocks: dict[str, MemoryBlock] = field(default_factory=dict)
    ledger: MutableMapping[str, int] = field(default_factory=dict)
    jobs: dict[str, MemoryJob] = field(default_factory=dict)
    tombstones: dict[str, Tombstone] = field(default_factory=dict)
    counters: dict[int, Counters] = field(default_factory=dict)
    masks: list[DeleteMask] = field(default_factory=list)
    paused: tuple[PausedScope, ...] = ()
    log: list[Command] = field(default_factory=list)
    touched_blocks: list[MemoryBlock] = field(default_factory=list)
    touched_jobs: list[MemoryJob] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.keeps_log:
            self.ledger = IdBook()
        self.queues = QueueBook(self.policies)
        self.lane = LaneView(lane=LANE)
        self.leases = LeaseBook()
        self._deletions = DeletionQueue()
        self._job_id = self._block_id = 0
        for level in (*self.policies, FINAL_LEVEL):
            self.counters[level] = Counters()

    def time(self) -> CommandTime:
        """Return the present command time."""
        return self.clock.read(self.limits.lease_ms)

    # Writers

    def add_blocks(self, blocks: Sequence[NewBlock]) -> AddOutcome:
        """Register and queue new blocks; an id that was accepted before changes nothing."""
        ledger, fresh = self.ledger, blocks
        duplicates: tuple[str, ...] = ()
        conflicting: tuple[str, ...] = ()
        if self.refuses_known and (known := [block for block in blocks if block.ulid in ledger]):
            conflicting = tuple([block.ulid for block in known if ledger[block.ulid] != block.digest()])
            duplicates = tuple([block.ulid for block in known if ledger[block.ulid] == block.digest()])
            fresh = [block for block in blocks if block.ulid not in ledger]
        if fresh:
            now_ms = self.time().now_ms
            index = self.write("add", blocks)
            for queue in {self._insert(block, now_ms, index): None for block in fresh}:
                if queue is not None:
                    self.queues.settle(queue)
        return AddOutcome(tuple([block.ulid for block in fresh]), duplicates, conflicting)

    def _insert(self, block: NewBlock, now_ms: int, masks_applied: int) -> MemoryQueue | None:
        self._block_id += 1
        view = queued_block(
            id=self._block_id,
            ulid=block.ulid,
            arrived_at_ms=now_ms,
            created_at_ms=block.created_at_ms,
            size_bytes=block.size_bytes,
        )
        is_final = block.level >= FINAL_LEVEL
        row = MemoryBlock(
            block.ulid,
            block.tenant,
            block.shard,
            block.level,
            block.size_bytes,
            block.shares,
            view,
            FINAL if is_final else QUEUED,
            None,
            None,
            block.sources if self.keeps_log else (),
            masks_applied,
            block.max_time_ms,
        )
        self.blocks[block.ulid] = row
        self.ledger[block.ulid] = block.digest()
        self.touched_blocks.append(row)
        return None if is_final else self.queues.put(row)

    # Workers

    def renew(self, renewals: Iterable[RenewLease], worker: str, expires_ms: int) -> list[RenewLease]:
        """Renew the leases that the worker still holds, never shortening one; writes no command."""
        held = []
        for renewal in renewals:
            view = renewal.job
            job = self.jobs.get(view.name)
            if job is None or job.id != view.id or job.token != view.token:
                continue
            if job.state is LEASED and job.worker == worker:
                held.append(renewal)
                if expires_ms > job.lease_expires_ms:
                    job.lease_expires_ms = expires_ms
                    self.leases.extend(job)
                    self.touch(job)
        return held

    def apply(self, change_set: ChangeSet, worker: str, replacements: Replacements) -> Applied:
        """Apply a change set atomically. Raises StaleSnapshot if its preconditions have changed."""
        self._check(change_set, replacements)
        return self.replay(change_set, worker, replacements)

    def new_job_id(self) -> int:
        """Return a new job id."""
        self._job_id += 1
        return self._job_id

    def replay(self, change_set: ChangeSet, worker: str, replacements: Replacements) -> Applied:
        """Apply a logged change set without validation, which needs renewals that are not logged."""
        time = self.time()
        index = self.write("update_plan", change_set, worker, replacements)
        self.clock.move(time)
        queues: dict[MemoryQueue, None] = {}
        for completion in change_set.completed:
            self._complete(
                self.jobs[completion.job.name], replacements[completion.job.name], (time.now_ms, index), queues
            )
        for returned in change_set.returned:
            self._return(self.jobs[returned.job.name], returned)
        assigned = []
        for assignment in change_set.assigned:
            job = self.jobs[assignment.job.name]
            self._lease(job, worker, index, time.now_ms, assignment.failures)
            assigned.append(job)
        for creation in change_set.created:
            job = self._create(creation, time.now_ms, queues)
            self._lease(job, worker, index, time.now_ms, 0)
            assigned.append(job)
        for queue in queues:
            self.queues.settle(queue)
        self._charge(change_set)
        return Applied(index, time.now_ms, tuple(assigned))

    def _check(self, change_set: ChangeSet, replacements: Replacements) -> None:
        named: set[str] = set()
        for completion in change_set.completed:
            self._check_job(completion.job, named)
            self._check_swap(completion, replacements)
        for returned in change_set.returned:
            self._check_job(returned.job, named, is_over=returned.outcome is AttemptOutcome.EXPIRED)
        for assignment in change_set.assigned:
            self._check_job(assignment.job, named, is_over=assignment.job.state is JobState.LEASED)
        planned: set[str] = set()
        for creation in change_set.created:
            self._check_plan(creation, planned)
        ended = len(change_set.completed) + sum([bool(returned.parked_reason) for returned in change_set.returned])
        live = self.live_job_count + len(change_set.created) - ended
        if change_set.created and 0 < self.limits.queue_max < live > self.live_job_count:
            raise StaleSnapshot("the schedule is full since the snapshot")

    def _check_job(self, view: JobView, named: set[str], *, is_over: bool = False) -> None:
        job = self.jobs.get(view.name)
        is_same = job is not None and (job.id, job.state, job.token, job.failures) == (
            view.id,
            view.state,
            view.token,
            view.failures,
        )
        if not is_same or view.name in named or (is_over and job and job.lease_expires_ms != view.lease_expires_ms):
            raise StaleSnapshot(f"job {view.name} has changed")
        named.add(view.name)

    def _check_swap(self, completion: CompleteJob, replacements: Replacements) -> None:
        job = self.jobs[completion.job.name]
        if not all(block.state is OWNED and block.owner is job for block in job.sources):
            raise StaleSnapshot(f"the sources of job {job.name} have changed")
        if any(block.ulid in self.ledger for block in replacements[job.name]):
            raise StaleSnapshot(f"a result of job {job.name} was accepted before")

    def _check_plan(self, creation: CreateJob, planned: set[str]) -> None:
        plan = creation.plan
        assert isinstance(plan, PlannedJob)
        for part in plan.taken():
            queue = self.queues.by_id[part.queue_id]
            for view in part.blocks:
                block = self.blocks.get(view.ulid)
                if block is None or block.queue is not queue or view.ulid in planned:
                    raise StaleSnapshot(f"blocks of the planned job {plan.name} are gone from their queue")
                planned.add(view.ulid)
        if plan.name in self.jobs:
            raise StaleSnapshot(f"job {plan.name} exists already")

    def _complete(
        self, job: MemoryJob, results: Sequence[NewBlock], moment: tuple[int, int], queues: dict[MemoryQueue, None]
    ) -> None:
        now_ms, index = moment
        # The masks of a run were fixed with its token: its results obey delete commands up to that token only.
        masks_applied = index if self.trusts_late_results else job.token
        self.move(job, JobState.DONE)
        self.live_job_count -= 1
        self.counters[job.level].completed += 1
        del self.jobs[job.name]
        for block in job.sources:
            block.state, block.owner = REPLACED, None
            self.add_tombstone(block, now_ms)
        self.touched_blocks.extend(job.sources)
        for result in results:
            queue = self._insert(result, now_ms, masks_applied)
            if queue is not None:
                queues[queue] = None

    def _return(self, job: MemoryJob, returned: ReturnJob) -> None:
        job.failures, job.parked_reason = returned.failures, returned.parked_reason
        if returned.parked_reason:
            self.move(job, JobState.PARKED)
            job.parked_kind = ParkedKind.EVICTED
            self.live_job_count -= 1
            self.parked_count += 1
            self.counters[job.level].parked += 1
        else:
            self.wait(job)

    def _create(self, creation: CreateJob, now_ms: int, queues: dict[MemoryQueue, None]) -> MemoryJob:
        plan = creation.plan
        assert isinstance(plan, PlannedJob)
        sources = tuple(self.blocks[view.ulid] for view in plan.blocks)
        size = plan.size_bytes()
        priority = job_priority_ms(ready_at_ms=plan.ready_at_ms, size_bytes=size)
        job = MemoryJob(
            self.new_job_id(),
            plan.name,
            plan.tenant,
            plan.shard,
            plan.level,
            JobState.BLOCKED,
            sources,
            size,
            now_ms,
            plan.ready_at_ms,
            priority,
            since_index=self.last_index,
        )
        for part in plan.taken():
            queue = self.queues.by_id[part.queue_id]
            self.queues.take(queue, [self.blocks[view.ulid] for view in part.blocks])
            queue.served_at_ms = now_ms
            queues[queue] = None
        for block in sources:
            block.state, block.owner = OWNED, job
        self.touched_blocks.extend(sources)
        self.jobs[job.name] = job
        self.live_job_count += 1
        self.counters[job.level].created += 1
        return job

    def _lease(self, job: MemoryJob, worker: str, index: int, now_ms: int, failures: int) -> None:
        self.move(job, JobState.LEASED)
        job.token, job.worker = index, worker
        if job.failures != failures:
            job.failures = failures
            job.priority_ms = job_priority_ms(ready_at_ms=job.ready_at_ms, size_bytes=job.size_bytes, failures=failures)
        job.lease_expires_ms = now_ms + self.limits.lease_ms
        if self.masks:
            job.masks = masks_about(self.masks, job.sources)
        self.leases.put(job)

    def restore_lease(self, job: MemoryJob) -> None:
        """Restore a lease from its row."""
        self.move(job, JobState.LEASED)
        self.leases.put(job)

    def _charge(self, change_set: ChangeSet) -> None:
        for tenant in change_set.tenants:
            self.queues.charge(tenant.tenant, tenant.virtual_time)
        for lane in change_set.lanes:
            self.lane = LaneView(
                lane=LANE,
                tenant_time=lane.tenant_time,
                virtual_time=lane.virtual_time,
                started_time=lane.started_time,
            )

    # Operators and deletion

    def requeue(self, job: MemoryJob) -> None:
        """Requeue a parked job and reset its failures."""
        assert job.state is JobState.PARKED, job.name
        self.write("requeue", job.name)
        job.failures, job.parked_reason, job.parked_kind = 0, "", ""
        job.since_index = self.last_index
        self.parked_count -= 1
        self.live_job_count += 1
        self.counters[job.level].unparked += 1
        self.wait(job)

    def change_limits(self, limits: ScheduleLimits) -> None:
        """Set the limits."""
        self.clock.move(self.time())
        self.write("limits", limits)
        self.limits = limits

    def advance_clock(self) -> None:
        """Advance command time if it is held back."""
        time = self.time()
        if time.is_held_back:
            self.write("advance_clock")
            self.clock.move(time)

    def dispatch_deletions(self, count: int) -> list[Tombstone]:
        """Return up to ``count`` objects that may be deleted now, earliest first."""
        due = [self.tombstones[ulid] for ulid in self._deletions.take(self.time().now_ms, count)]
        for tombstone in due:
            tombstone.is_dispatched = True
        self.version += bool(due)
        return due

    def confirm_deletion(self, ulid: str) -> None:
        """Record that an object is deleted; idempotent."""
        if self.tombstones.pop(ulid, None) is None:
            return
        self.write("deleted", ulid)
        block = self.blocks[ulid]
        block.state = BlockState.DELETED
        self.touched_blocks.append(block)
        if not self.keeps_log:
            del self.blocks[ulid]

    def add_tombstone(self, block: MemoryBlock, now_ms: int) -> None:
        """Create the tombstone of a block that left the index."""
        eligible_at_ms = now_ms + self.cleanup_delay_ms
        self.tombstones[block.ulid] = Tombstone(block.ulid, eligible_at_ms)
        self._deletions.put(eligible_at_ms, block.ulid)

    def retry_deletion(self, ulid: str) -> None:
        """Retry a deletion that was not confirmed."""
        tombstone = self.tombstones.get(ulid)
        if tombstone is not None:
            self._deletions.put(tombstone.eligible_at_ms, ulid)

    # Rows

    @property
    def is_special(self) -> bool:
        """Return whether a poll must consider pauses or caps."""
        return bool(self.paused) or self.queues.has_caps

    def wait(self, job: MemoryJob) -> None:
        """Set a job to waiting, with its present priority."""
        self.move(job, JobState.WAITING)
        job.priority_ms = job_priority_ms(ready_at_ms=job.ready_at_ms, size_bytes=job.size_bytes, failures=job.failures)
        self.queues.line_up(job)

    def move(self, job: MemoryJob, state: JobState) -> None:
        """Change a job's state and the indexes by state."""
        row = self.queues.tenant(job.tenant)
        if job.state is LEASED:
            row.running_count -= 1
            self.leases.remove(job)
        elif job.state is JobState.WAITING:
            self.queues.step_out(job)
        row.running_count += state is LEASED
        job.state = state
        self.touch(job)

    def touch(self, job: MemoryJob) -> None:
        """Mark a job's row as changed."""
        self.version += 1
        self.touched_jobs.append(job)

    def write(self, kind: str, *arguments: Any) -> int:
        """Append an entry to the log; return its index."""
        self.version += 1
        self.last_index += 1
        if self.keeps_log:
            self.log.append(Command(kind, self.clock.wall_ms, arguments))
        return self.last_index
