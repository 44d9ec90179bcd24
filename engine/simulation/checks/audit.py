"""The audit trail: a shadow copy of the schedule, updated step by step from observed events.

The shadow is independent of the rows that it checks. A *step* is one transaction: the rows it touched, and its poll or
its batch of added blocks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.errors import LithifyError
from engine.core.fast_dataclasses import fast_init
from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.plan.retention import RetentionPolicy, RetentionSlice
from engine.schedule.model import HOLDING_STATES, LIVE_STATES, JobState
from engine.simulation.memory.id_book import IdBook
from engine.simulation.memory.lineage import Item, items_in
from engine.simulation.memory.rows import (
    LIVE_BLOCKS,
    REMOVED_BLOCKS,
    BlockState,
    DatasetKey,
    MemoryBlock,
    MemoryJob,
    NewBlock,
    Removal,
    Share,
)
from engine.simulation.memory.schedule import AddOutcome, MemorySchedule
from engine.simulation.memory.service import PollFact

_MASK = (1 << 64) - 1
DELETED = BlockState.DELETED


class InvariantBroken(LithifyError):
    """An invariant of the compaction service does not hold."""

    code = "invariant_broken"

    def __init__(self, number: int, message: str) -> None:
        super().__init__(f"invariant {number}: {message}")
        self.number = number
        self.broken = message

    def __reduce__(self) -> tuple[type[InvariantBroken], tuple[int, str]]:
        """Support pickling."""
        return InvariantBroken, (self.number, self.broken)


@fast_init
@dataclass(frozen=True, slots=True)
class AddFact:
    """A batch of blocks from a writer, and its outcome."""

    blocks: Sequence[NewBlock]
    outcome: AddOutcome
    version_before: int
    version_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionFact:
    """An action of an operator or a control task.

    ``tenant`` is the only tenant whose rows it may change (None: any); ``before`` and ``after`` are the rows of all
    others. ``part`` is the slice that retention dropped at the wall time ``at_ms``.
    """

    tenant: str | None = None
    before: Any = None
    after: Any = None
    part: RetentionSlice | None = None
    policy: RetentionPolicy | None = None
    at_ms: int = 0
    mask: DeleteMask | None = None


@dataclass(slots=True)
class Step:
    """One transaction: the rows it touched, and its poll, batch or action."""

    blocks: Sequence[MemoryBlock] = ()
    jobs: Sequence[MemoryJob] = ()
    poll: PollFact | None = None
    add: AddFact | None = None
    action: ActionFact | None = None
    removals: Sequence[Removal] = ()


@dataclass(slots=True)
class JobShadow:
    """The state of a job after the last step."""

    state: JobState
    token: int
    worker: str
    lease_expires_ms: int
    failures: int


@dataclass(slots=True)
class Audit:
    """The shadow copy.

    ``live`` and ``accepted`` are (count, digest) of the data by tenant and service, without removed data; ``items`` are
    the same data one by one, if history is kept. ``masks`` holds the last delete command by tenant and service.
    """

    schedule: MemorySchedule
    cleanup_delay_ms: int = 0
    steps: int = 0
    jobs: dict[int, JobShadow] = field(default_factory=dict)
    blocks: dict[str, BlockState] = field(default_factory=dict)
    replaced_at_ms: dict[str, int] = field(default_factory=dict)
    ever: MutableMapping[str, int] = field(default_factory=dict)
    token_owner: dict[int, str] = field(default_factory=dict)
    token_max: int = 0
    live_jobs: int = 0
    parked_jobs: int = 0
    failures_max: int = 0
    present: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    live: defaultdict[DatasetKey, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    accepted: defaultdict[DatasetKey, tuple[int, int]] = field(default_factory=lambda: defaultdict(lambda: (0, 0)))
    items: set[Item] = field(default_factory=set)
    let_go: set[str] = field(default_factory=set)
    masks: dict[DatasetKey, int] = field(default_factory=dict)
    mask_max: int = 0

    def __post_init__(self) -> None:
        if not self.schedule.keeps_log:
            self.ever = IdBook("b")

    def count_data(self, step: Step) -> set[DatasetKey]:
        """Update the sums of visible and of accepted data; return the datasets that the step touched."""
        touched: set[DatasetKey] = set()
        if step.action is not None and step.action.mask is not None:
            touched |= self._hide(step.action.mask)
        states, live = self.blocks, LIVE_BLOCKS
        for block in step.blocks:
            before = states.get(block.ulid)
            is_live = block.state in live
            if before is not block.state and (before in live) != is_live:
                self._count(self.live, block, block.shares, 1 if is_live else -1, touched)
        for removal in step.removals:
            self._let_go(removal, touched)
        if step.add is not None:
            for new in step.add.blocks:
                if new.ulid not in self.ever:
                    self._accept(new, touched)
        return touched

    def is_visible(self, block: MemoryBlock, share: Share) -> bool:
        """Return whether readers see this part of a live block: no delete request matches it."""
        if not self.masks:
            return True
        hidden_by = max(self.masks.get((share.tenant, ""), 0), self.masks.get((share.tenant, share.service), 0))
        return block.masks_applied >= hidden_by

    def _hide(self, mask: DeleteMask) -> set[DatasetKey]:
        """Hide all data of the mask that was accepted so far."""
        self.masks[mask.tenant, mask.service] = self.mask_max = mask.index
        meant = {key for key in self.accepted if key[0] == mask.tenant and mask.service in ("", key[1])}
        for key in meant:
            self.live[key] = self.accepted[key] = (0, 0)
        self.items -= {item for item in self.items if (item[1], item[2]) in meant}
        return meant

    def _let_go(self, removal: Removal, touched: set[DatasetKey]) -> None:
        block = removal.block
        if removal.is_trim:
            self._count(self.live, block, removal.shares, -1, touched)
        else:
            self.let_go.add(block.ulid)
        self._count(self.accepted, block, removal.shares, -1, touched)
        if self.schedule.keeps_log:
            for share in removal.shares:
                if self.is_visible(block, share):
                    self.items.difference_update(items_in(self.schedule, block, share))

    def _accept(self, new: NewBlock, touched: set[DatasetKey]) -> None:
        for share in new.shares:
            key = (share.tenant, share.service)
            count, digest = self.accepted[key]
            self.accepted[key] = (count + share.count, digest + share.digest & _MASK)
            touched.add(key)
            if self.schedule.keeps_log:
                self.items.add((new.ulid, *key))

    def _count(
        self,
        sums: defaultdict[DatasetKey, tuple[int, int]],
        block: MemoryBlock,
        shares: Sequence[Share],
        sign: int,
        touched: set[DatasetKey],
    ) -> None:
        masks = self.masks
        for share in shares:
            if not masks or self.is_visible(block, share):
                key = (share.tenant, share.service)
                count, digest = sums[key]
                sums[key] = (count + sign * share.count, digest + sign * share.digest & _MASK)
                touched.add(key)

    def note(self, step: Step) -> None:
        """Record the step."""
        self.steps += 1
        if step.blocks:
            self._note_blocks(step.blocks)
        for job in step.jobs:
            self._note_job(job)
        if step.poll is not None and step.poll.applied is not None:
            applied = step.poll.applied
            if applied.assigned:
                self.token_owner[applied.index] = step.poll.request.worker
                self.token_max = applied.index

    def _note_blocks(self, blocks: Sequence[MemoryBlock]) -> None:
        states = self.blocks
        for block in blocks:
            ulid, state = block.ulid, block.state
            before = states.get(ulid)
            if before is state:
                continue
            if before is None:
                self.ever[ulid] = 1
            states[ulid] = state
            if state in REMOVED_BLOCKS:
                self.replaced_at_ms[ulid] = self.schedule.time().now_ms
            elif state is DELETED:
                self.replaced_at_ms.pop(ulid, None)
                if not self.schedule.keeps_log:
                    del states[ulid]

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
        if job.state not in HOLDING_STATES:
            self.jobs.pop(job.id, None)
        elif shadow is None:
            self.jobs[job.id] = JobShadow(job.state, job.token, job.worker, job.lease_expires_ms, job.failures)
        else:
            shadow.state, shadow.token, shadow.worker = job.state, job.token, job.worker
            shadow.lease_expires_ms, shadow.failures = job.lease_expires_ms, job.failures
