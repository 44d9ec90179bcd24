"""A simulated compactor node: its runs, its poll requests, and the handling of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.lanes.profiles.jobs import DeleteMask, ProfileMergeResult
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.schedule.model import RenewLease
from engine.simulation.memory.rows import MemoryBlock, MemoryJob
from engine.simulation.memory.snapshots import PollRequest, WorkerReport

FAILED = FailureReason(error_class="MergeFailed", message="made up")
UNSURE_POLLS = 3
"""Polls after a lost answer that report the last answer received: to receive one, to report it, and one spare."""
RUNNING, SUCCESS, RELEASED = UpdateStatus.IN_PROGRESS, UpdateStatus.SUCCESS, UpdateStatus.RELEASED


@dataclass(slots=True, eq=False)
class Run:
    """A job under one token at one worker. ``report`` is its report in the next poll."""

    job: str
    token: int
    sources: tuple[MemoryBlock, ...]
    report: WorkerReport
    masks: tuple[DeleteMask, ...] = ()
    is_over: bool = False

    @classmethod
    def start(cls, job: MemoryJob) -> Run:
        """Start a newly assigned job."""
        report = WorkerReport(JobUpdate(job=job.name, token="", status=RUNNING), job.token)
        return cls(job.name, job.token, job.sources, report, job.masks)

    def succeed(self, result: ProfileMergeResult) -> None:
        """Report this result from the next poll on."""
        self.is_over = True
        self.report = WorkerReport(JobUpdate(job=self.job, token="", status=SUCCESS), self.token, result)

    def give_back(self, reason: FailureReason | None) -> None:
        """Report the return of the job from the next poll on."""
        self.is_over = True
        self.report = WorkerReport(JobUpdate(job=self.job, token="", status=RELEASED, reason=reason), self.token)


@dataclass(slots=True, eq=False)
class Worker:
    """A node. ``life`` increases with every crash; runs of an earlier life do not continue.

    ``last_request`` is the cached request, None after a change.
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
    last_serial: int = 0
    unsure_polls: int = 0
    last_request: PollRequest | None = None
    runs: dict[str, Run] = field(default_factory=dict)

    def request(self) -> PollRequest:
        """Return its poll request. A run that has ended takes no slot."""
        request = self.last_request
        if request is None:
            report = tuple([run.report for run in self.runs.values()])
            last_serial = self.last_serial if self.unsure_polls else 0
            request = self.last_request = PollRequest(self.name, self.slots - self.running, report, last_serial)
        return request

    def succeed(self, run: Run, result: ProfileMergeResult) -> None:
        """End one of its runs with a result."""
        self._free_slot(run)
        run.succeed(result)

    def give_back(self, run: Run, reason: FailureReason | None) -> None:
        """End one of its runs without a result."""
        self._free_slot(run)
        run.give_back(reason)

    def apply_answer(self, request: PollRequest, renewed: Sequence[RenewLease], serial: int) -> None:
        """Apply the answer to a request; ``serial`` was the last command when the answer was made."""
        self.last_serial = serial
        if self.unsure_polls:
            self.unsure_polls -= 1
            self.last_request = None
        if len(renewed) != len(request.reports):
            kept = {renewal.job.name for renewal in renewed}
            for report in request.reports:
                name = report.update.job
                if name not in kept and (run := self.runs.get(name)) is not None and run.token == report.token:
                    self._free_slot(run)
                    del self.runs[name]

    def take(self, job: MemoryJob) -> Run:
        """Start the run of an assigned job."""
        if (old := self.runs.get(job.name)) is not None:
            self._free_slot(old)
        self.running += 1
        self.last_request = None
        run = self.runs[job.name] = Run.start(job)
        return run

    def _free_slot(self, run: Run) -> None:
        self.running -= not run.is_over
        self.last_request = None

    def lose(self) -> None:
        """Record a lost answer; the next polls report the last answer received."""
        self.unsure_polls = UNSURE_POLLS
        self.last_request = None

    def crash(self) -> None:
        """Drop all state."""
        self.last_request = None
        self.last_serial = self.unsure_polls = 0
        self.life += 1
        self.running = 0
        self.runs = {}
        self.crashes_after_upload = False
