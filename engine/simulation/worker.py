"""A simulated compactor node: what it holds, what it says in a poll, what it does with the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.lanes.profiles.jobs import DeleteMask, ProfileMergeResult
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.model import RenewLease
from engine.simulation.rows import MemoryBlock, MemoryJob
from engine.simulation.snapshots import PollOrder, Told

FAILED = FailureReason(error_class="MergeFailed", message="made up")
UNSURE_POLLS = 3
"""After a lost answer, one to hear another, one to say so, and one more."""
RUNNING, SUCCESS, RELEASED = UpdateStatus.IN_PROGRESS, UpdateStatus.SUCCESS, UpdateStatus.RELEASED


@dataclass(slots=True, eq=False)
class Run:
    """A job under one token at one worker. ``told`` is what the worker says of it in its next poll."""

    job: str
    token: int
    sources: tuple[MemoryBlock, ...]
    told: Told
    masks: tuple[DeleteMask, ...] = ()
    is_over: bool = False

    @classmethod
    def start(cls, job: MemoryJob) -> Run:
        """Begin a job just assigned."""
        told = Told(JobUpdate(job=job.name, token="", status=RUNNING), job.token)
        return cls(job.name, job.token, job.sources, told, job.masks)

    def succeed(self, result: ProfileMergeResult) -> None:
        """Report this result from now on."""
        self.is_over = True
        self.told = Told(JobUpdate(job=self.job, token="", status=SUCCESS), self.token, result)

    def give_back(self, reason: FailureReason | None) -> None:
        """Report from now on that the job is not run any more."""
        self.is_over = True
        self.told = Told(JobUpdate(job=self.job, token="", status=RELEASED, reason=reason), self.token)


@dataclass(slots=True, eq=False)
class Worker:
    """A node. ``life`` grows when it crashes: what was begun in an earlier life does not go on.

    ``last_order`` is what it said last, None once it would say something else.
    """

    name: str
    number: int
    slots: int
    life: int = 0
    running: int = 0
    crashes_after_upload: bool = False
    paused_until_ms: int = 0
    next_poll_ms: int = -1
    clock_error_ms: int = 0
    heard: int = 0
    unsure_polls: int = 0
    last_order: PollOrder | None = None
    runs: dict[str, Run] = field(default_factory=dict)

    def order(self) -> PollOrder:
        """Return what it would say now. A run that is over takes no slot any more."""
        order = self.last_order
        if order is None:
            told = tuple([run.told for run in self.runs.values()])
            heard = self.heard if self.unsure_polls else 0
            order = self.last_order = PollOrder(self.name, self.slots - self.running, told, heard)
        return order

    def succeed(self, run: Run, result: ProfileMergeResult) -> None:
        """End one of its runs with a result."""
        self._free_slot(run)
        run.succeed(result)

    def give_back(self, run: Run, reason: FailureReason | None) -> None:
        """End one of its runs without a result."""
        self._free_slot(run)
        run.give_back(reason)

    def hear(self, order: PollOrder, renewed: Sequence[RenewLease], serial: int) -> None:
        """Take in what the answer to an order, made when ``serial`` was the last command, says of its runs."""
        self.heard = serial
        if self.unsure_polls:
            self.unsure_polls -= 1
            self.last_order = None
        if len(renewed) != len(order.told):
            kept = {renewal.job.name for renewal in renewed}
            for told in order.told:
                name = told.update.job
                if name not in kept and (run := self.runs.get(name)) is not None and run.token == told.token:
                    self._free_slot(run)
                    del self.runs[name]

    def take(self, job: MemoryJob) -> Run:
        """Return the run of a job that it was given."""
        if (old := self.runs.get(job.name)) is not None:
            self._free_slot(old)
        self.running += 1
        self.last_order = None
        run = self.runs[job.name] = Run.start(job)
        return run

    def _free_slot(self, run: Run) -> None:
        self.running -= not run.is_over
        self.last_order = None

    def lose(self) -> None:
        """Note that an answer did not come; the next polls say what was heard."""
        self.unsure_polls = UNSURE_POLLS
        self.last_order = None

    def crash(self) -> None:
        """Forget everything."""
        self.last_order = None
        self.heard = self.unsure_polls = 0
        self.life += 1
        self.running = 0
        self.runs = {}
        self.crashes_after_upload = False
