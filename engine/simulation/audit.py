"""What those who check know: a shadow of the schedule, written down step by step from what was seen to happen.

The shadow is kept apart from the rows that it judges. A *step* is one transaction: the rows it touched, and the poll or
the batch of added blocks that it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.errors import LithifyError
from engine.scheduling.model import HOLDING_STATES, LIVE_STATES, JobState
from engine.simulation.ids import added
from engine.simulation.memory_schedule import AddOutcome, MemorySchedule
from engine.simulation.memory_service import PollFact
from engine.simulation.rows import LIVE_BLOCKS, BlockState, MemoryBlock, MemoryJob, NewBlock

_MASK = (1 << 64) - 1


class InvariantBroken(LithifyError):
    """An invariant of the compaction service does not hold."""

    code = "invariant_broken"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"invariant {number}: {message}")
        self.number = number


@dataclass(frozen=True, slots=True)
class AddFact:
    """A batch that a writer sent, and what became of it."""

    blocks: Sequence[NewBlock]
    outcome: AddOutcome
    version_before: int
    version_after: int


@dataclass(slots=True)
class Step:
    """One transaction: the rows it touched, and what it was."""

    blocks: Sequence[MemoryBlock] = ()
    jobs: Sequence[MemoryJob] = ()
    poll: PollFact | None = None
    add: AddFact | None = None
    is_operator: bool = False


@dataclass(slots=True)
class JobShadow:
    """A job as it was after the last step."""

    state: JobState
    token: int
    worker: str
    lease_expires_ms: int
    failures: int


@dataclass(slots=True)
class Audit:
    """The shadow. ``live`` and ``accepted`` are (count, digest) of the data by tenant."""

    schedule: MemorySchedule
    cleanup_delay_ms: int = 0
    steps: int = 0
    jobs: dict[int, JobShadow] = field(default_factory=dict)
    blocks: dict[str, BlockState] = field(default_factory=dict)
    replaced_at_ms: dict[str, int] = field(default_factory=dict)
    ever: set[str] = field(default_factory=set)
    token_owner: dict[int, str] = field(default_factory=dict)
    token_max: int = 0
    live_jobs: int = 0
    parked_jobs: int = 0
    failures_max: int = 0
    present: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    live: defaultdict[str, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    accepted: defaultdict[str, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))

    def count_data(self, step: Step) -> set[str]:
        """Bring the sums of live and accepted data up to date; return the tenants that the step touched."""
        tenants: set[str] = set()
        for block in step.blocks:
            was_live = self.blocks.get(block.ulid) in LIVE_BLOCKS
            is_live = block.state in LIVE_BLOCKS
            if was_live != is_live:
                for share in block.shares:
                    self._sum(self.live, share.tenant, share.count, share.digest, 1 if is_live else -1)
                    tenants.add(share.tenant)
        if step.add is not None:
            fresh = [block for block in step.add.blocks if block.ulid not in self.ever]
            for new in fresh:
                for share in new.shares:
                    self._sum(self.accepted, share.tenant, share.count, share.digest, 1)
                    tenants.add(share.tenant)
        return tenants

    def note(self, step: Step) -> None:
        """Write down what the step did."""
        self.steps += 1
        for block in step.blocks:
            self._note_block(block)
        for job in step.jobs:
            self._note_job(job)
        if step.poll is not None and step.poll.applied is not None:
            applied = step.poll.applied
            if applied.assigned:
                self.token_owner[applied.index] = step.poll.order.worker
                self.token_max = applied.index

    def _note_block(self, block: MemoryBlock) -> None:
        if block.ulid not in self.blocks:
            self.ever.add(block.ulid)
        if block.state is BlockState.DELETED:
            self.replaced_at_ms.pop(block.ulid, None)
        elif block.state is BlockState.REPLACED and self.blocks.get(block.ulid) is not BlockState.REPLACED:
            self.replaced_at_ms[block.ulid] = self.schedule.time().now_ms
        if block.state is BlockState.DELETED and not self.schedule.keeps_log:
            self.blocks.pop(block.ulid, None)
        else:
            self.blocks[block.ulid] = block.state

    def _note_job(self, job: MemoryJob) -> None:
        shadow = self.jobs.get(job.id)
        if shadow is not None and shadow.state is job.state is JobState.LEASED and shadow.token == job.token:
            shadow.lease_expires_ms = job.lease_expires_ms
            return
        before = shadow.state if shadow is not None else None
        if before is not job.state:
            self.live_jobs += (job.state in LIVE_STATES) - (before in LIVE_STATES)
            self.parked_jobs += (job.state is JobState.PARKED) - (before is JobState.PARKED)
            self.present[job.level] += (job.state in HOLDING_STATES) - (before in HOLDING_STATES)
        if job.state is JobState.DONE:
            self.jobs.pop(job.id, None)
        elif shadow is None:
            self.jobs[job.id] = JobShadow(job.state, job.token, job.worker, job.lease_expires_ms, job.failures)
        else:
            shadow.state, shadow.token, shadow.worker = job.state, job.token, job.worker
            shadow.lease_expires_ms, shadow.failures = job.lease_expires_ms, job.failures

    @staticmethod
    def _sum(sums: defaultdict[str, tuple[int, int]], tenant: str, count: int, digest: int, sign: int) -> None:
        old_count, old_digest = sums[tenant]
        new_digest = added(old_digest, digest) if sign > 0 else old_digest - digest & _MASK
        sums[tenant] = (old_count + sign * count, new_digest)
