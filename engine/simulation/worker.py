"""A simulated compactor node: what it holds, what it says in a poll, what it does with the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_not

from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.protocol.profile_jobs import DeleteMask, ProfileMergeResult
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
    """A node. ``life`` grows when it crashes: what was begun in an earlier life does not go on."""

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
        capacity = self.slots - self.running
        heard = self.heard if self.unsure_polls else 0
        told = [run.told for run in self.runs.values()]
        last = self.last_order
        if (
            last is None
            or last.capacity != capacity
            or last.heard != heard
            or len(last.told) != len(told)
            or any(map(is_not, last.told, told))
        ):
            last = self.last_order = PollOrder(self.name, capacity, tuple(told), heard)
        return last

    def hear(self, order: PollOrder, kept: set[str], assigned: Iterable[MemoryJob], serial: int) -> list[Run]:
        """Take in the answer to an order, made when ``serial`` was the last command; return the runs to start."""
        self.heard = serial
        self.unsure_polls -= self.unsure_polls > 0
        if len(kept) != len(order.told):
            for told in order.told:
                name = told.update.job
                if name not in kept and (run := self.runs.get(name)) is not None and run.token == told.token:
                    self.running -= not run.is_over
                    del self.runs[name]
        started = []
        for job in assigned:
            old = self.runs.get(job.name)
            self.running += 1 - (old is not None and not old.is_over)
            run = self.runs[job.name] = Run.start(job)
            started.append(run)
        return started

    def lose(self) -> None:
        """Note that an answer did not come; the next polls say what was heard."""
        self.unsure_polls = UNSURE_POLLS

    def crash(self) -> None:
        """Forget everything."""
        self.heard = self.unsure_polls = 0
        self.life += 1
        self.running = 0
        self.runs = {}
        self.crashes_after_upload = False
