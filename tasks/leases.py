"""What a compactor node holds: its jobs, their leases, and what it has to say about them at the next poll.

Pure bookkeeping behind one lock; nothing here calls the service, the broker or Spark. The rules:

1. An entry is a (job, token) pair. The same job under a new token is another entry: results carry the token in their
   ids, so the old run is stopped and a new one starts.
2. A pair begins once, however often its message is delivered: ``begin`` moves it from assigned to running.
3. A pair that was reported as in progress and is not among the answered leases is lost: drop it, or stop its run.
4. A lease counts from the moment the poll was *sent*, on the monotonic clock, so the node gives up before the service.
5. A finished pair leaves the table with the first answered poll that reported it, whatever the answer says of it.
6. A pair whose lease ran out without an answer is stopped and then given back, because after an outage of the service
   the schedule may still hold it for us.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine.protocol.messages import (
    Assignment,
    FailureReason,
    JobUpdate,
    PollResponse,
    Progress,
    UpdateStatus,
)

Pair = tuple[str, str]
"""A job and the token under which it was assigned."""


class LeaseState(enum.StrEnum):
    """Where a held job stands."""

    ASSIGNED = "assigned"  # given to us, its message is on the way
    RUNNING = "running"  # a thread merges it
    STOPPING = "stopping"  # its run was told to stop and has not ended yet
    FINISHED = "finished"  # to be reported: a result, a reason, or neither (given back)


@dataclass(slots=True, kw_only=True)
class HeldJob:
    """One entry of the table. Only the table changes it.

    ``deadline`` and ``since`` are seconds of the monotonic clock. ``is_ours`` is False once the service has said that
    the job is not ours any more: then nothing is reported.
    """

    job: str
    token: str
    spec: dict[str, Any]
    deadline: float
    since: float
    state: LeaseState = LeaseState.ASSIGNED
    is_ours: bool = True
    progress: Progress | None = None
    result: dict[str, Any] | None = None
    reason: FailureReason | None = None

    @property
    def pair(self) -> Pair:
        return self.job, self.token

    def update(self) -> JobUpdate:
        """What to say of this job at the next poll."""
        if self.state is not LeaseState.FINISHED:
            return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.IN_PROGRESS, progress=self.progress)
        if self.result is not None:
            return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.SUCCESS, result=self.result)
        return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.RELEASED, reason=self.reason)


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """What an answered poll changed: pairs to enqueue, pairs whose runs must stop."""

    assigned: tuple[Pair, ...] = ()
    lost: tuple[Pair, ...] = ()


class LeaseTable:
    """The node's held jobs. Every method is safe to call from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Condition()
        self._held: dict[Pair, HeldJob] = {}

    # What the poll loop asks.

    def updates(self) -> tuple[JobUpdate, ...]:
        """Reports for the next poll: every job that is still ours."""
        with self._lock:
            return tuple(
                held.update() for held in self._held.values() if held.is_ours and held.state is not LeaseState.STOPPING
            )

    def is_any_stopping(self) -> bool:
        """Whether a job that is still ours is left out of the reports, as its run has not ended yet."""
        with self._lock:
            return any(held.is_ours and held.state is LeaseState.STOPPING for held in self._held.values())

    def busy(self) -> tuple[dict[str, Any], ...]:
        """Specifications of all jobs that take up a slot: assigned, running, or not yet stopped."""
        with self._lock:
            return tuple(held.spec for held in self._held.values() if held.state is not LeaseState.FINISHED)

    def take_in(self, reported: Iterable[JobUpdate], response: PollResponse, sent_at: float) -> PollOutcome:
        """Apply an answered poll that carried ``reported`` and was sent at ``sent_at`` (monotonic seconds)."""
        granted = {(lease.job, lease.token): lease.expires_in for lease in response.leases}
        with self._lock:
            lost = [pair for update in reported if (pair := self._settle(update, granted, sent_at))]
            assigned = [pair for assignment in response.assignments if (pair := self._accept(assignment, sent_at))]
            self._lock.notify_all()
        return PollOutcome(assigned=tuple(assigned), lost=tuple(lost))

    def forget_finished(self, reported: Iterable[JobUpdate]) -> None:
        """Drop finished jobs whose reports the service refuses to read; their leases run out."""
        with self._lock:
            for update in reported:
                if update.status is not UpdateStatus.IN_PROGRESS:
                    self._held.pop((update.job, update.token), None)
            self._lock.notify_all()

    def expire(self) -> tuple[Pair, ...]:
        """Stop every job whose lease ran out; return those whose runs must stop."""
        now = self._clock()
        with self._lock:
            late = [
                held
                for held in self._held.values()
                if held.deadline <= now and held.state in (LeaseState.ASSIGNED, LeaseState.RUNNING)
            ]
            return tuple(held.pair for held in late if self._stop(held))

    def next_deadline(self) -> float | None:
        """When the first lease of a job that still counts on it runs out (monotonic seconds)."""
        with self._lock:
            return min(
                (
                    held.deadline
                    for held in self._held.values()
                    if held.state in (LeaseState.ASSIGNED, LeaseState.RUNNING)
                ),
                default=None,
            )

    def overdue(self, seconds: float) -> tuple[Pair, ...]:
        """Assigned pairs whose message has not arrived for so long; they are given back."""
        now = self._clock()
        with self._lock:
            late = [
                held for held in self._held.values() if held.state is LeaseState.ASSIGNED and now - held.since > seconds
            ]
            for held in late:
                held.state = LeaseState.FINISHED
            return tuple(held.pair for held in late)

    def give_back(self, pairs: Iterable[Pair] | None = None) -> tuple[Pair, ...]:
        """Give these jobs (or all) back unfinished; return those whose runs must stop."""
        with self._lock:
            chosen = list(self._held) if pairs is None else list(pairs)
            held = [self._held[pair] for pair in chosen if pair in self._held]
            return tuple(
                one.pair for one in held if one.state in (LeaseState.ASSIGNED, LeaseState.RUNNING) and self._stop(one)
            )

    def abandon_runs(self) -> tuple[Pair, ...]:
        """Count runs that did not stop in time as ended, so that the last poll gives their jobs back."""
        with self._lock:
            stuck = [held for held in self._held.values() if held.state is LeaseState.STOPPING]
            for held in stuck:
                self._end(held)
            return tuple(held.pair for held in stuck)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no run is left; False when the time is over first."""
        with self._lock:
            return self._lock.wait_for(
                lambda: all(held.state is LeaseState.FINISHED for held in self._held.values()), timeout=seconds
            )

    # What a run asks.

    def begin(self, pair: Pair) -> HeldJob | None:
        """Start a pair; None if it is not (or not any more) waiting to be started."""
        with self._lock:
            held = self._held.get(pair)
            if held is None or held.state is not LeaseState.ASSIGNED:
                return None
            held.state = LeaseState.RUNNING
            held.since = self._clock()
            return held

    def is_stopped(self, pair: Pair) -> bool:
        """Whether the run of this pair should end: lost, given back, or unknown."""
        with self._lock:
            held = self._held.get(pair)
            return held is None or held.state is not LeaseState.RUNNING

    def note_progress(self, pair: Pair, progress: Progress) -> None:
        """Remember how far a run is, for the next poll."""
        with self._lock:
            held = self._held.get(pair)
            if held is not None:
                held.progress = progress

    def finish(self, pair: Pair, *, result: dict[str, Any] | None = None, reason: FailureReason | None = None) -> bool:
        """End a run; True if what it did will be reported as it is, False if it had been told to stop."""
        with self._lock:
            held = self._held.get(pair)
            if held is None or held.state not in (LeaseState.RUNNING, LeaseState.STOPPING):
                return False
            was_running = held.state is LeaseState.RUNNING
            if result is not None or was_running:
                held.result, held.reason = result, reason if result is None else None
            self._end(held)
            return was_running

    # Below here the lock is held.

    def _settle(self, update: JobUpdate, granted: dict[Pair, float], sent_at: float) -> Pair | None:
        """Apply the answer about one reported pair; the pair if its run must stop."""
        pair = (update.job, update.token)
        held = self._held.get(pair)
        if held is None:
            return None
        if update.status is not UpdateStatus.IN_PROGRESS:
            del self._held[pair]
            return None
        if pair in granted:
            held.deadline = sent_at + granted[pair]
            return None
        held.is_ours = False
        if held.state is LeaseState.RUNNING:
            held.state = LeaseState.STOPPING
            return pair
        if held.state is not LeaseState.STOPPING:
            del self._held[pair]
        return None

    def _accept(self, assignment: Assignment, sent_at: float) -> Pair | None:
        """Take a new pair in; a pair already held only has its lease renewed."""
        pair = (assignment.job, assignment.token)
        deadline = sent_at + assignment.expires_in
        if (held := self._held.get(pair)) is not None:
            held.deadline = max(held.deadline, deadline)
            return None
        self._held[pair] = HeldJob(
            job=assignment.job,
            token=assignment.token,
            spec=assignment.spec,
            deadline=deadline,
            since=self._clock(),
        )
        return pair

    def _stop(self, held: HeldJob) -> bool:
        """Tell a job to stop; True if a run has to notice, False if it is given back right here."""
        if held.state is LeaseState.RUNNING:
            held.state = LeaseState.STOPPING
            return True
        held.state = LeaseState.FINISHED
        self._lock.notify_all()
        return False

    def _end(self, held: HeldJob) -> None:
        if held.is_ours:
            held.state = LeaseState.FINISHED
        else:
            del self._held[held.pair]
        self._lock.notify_all()
