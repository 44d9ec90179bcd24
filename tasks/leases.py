"""Lease table of a compactor node: its jobs, their leases, and the reports for the next poll.

State behind one lock; nothing here calls the service, the broker or Spark. Rules:

1. An entry is a (job, token) pair. The same job under a new token is another entry: ids of results contain the token,
   so the old run is stopped and a new one starts.
2. A pair starts once, however often its message is delivered: ``begin`` moves it from assigned to running.
3. A pair that was reported as in progress and has no lease in the response is lost: its entry is dropped, or its run
   is stopped.
4. A lease counts from the time at which the poll was *sent*, on the monotonic clock, so it expires here before it
   expires in the service.
5. A finished pair is removed by the first answered poll that reported it, whatever the response.
6. A pair whose lease expires without a response is stopped and then released, because after an outage of the service
   the schedule may still assign it to this node.
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
    """State of a held job."""

    ASSIGNED = "assigned"  # its message has not arrived yet
    RUNNING = "running"  # a thread is merging it
    STOPPING = "stopping"  # its run is cancelled and has not ended yet
    FINISHED = "finished"  # to be reported: a result, a failure reason, or neither (released)


@dataclass(slots=True, kw_only=True)
class HeldJob:
    """One entry of the table. Only the table changes it.

    ``deadline`` and ``since`` are seconds of the monotonic clock. ``is_owned`` is False once a response did not
    renew the lease: then nothing is reported.
    """

    job: str
    token: str
    spec: dict[str, Any]
    deadline: float
    since: float
    state: LeaseState = LeaseState.ASSIGNED
    is_owned: bool = True
    progress: Progress | None = None
    result: dict[str, Any] | None = None
    reason: FailureReason | None = None

    @property
    def pair(self) -> Pair:
        return self.job, self.token

    def update(self) -> JobUpdate:
        """Return the report on this job for the next poll."""
        if self.state is not LeaseState.FINISHED:
            return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.IN_PROGRESS, progress=self.progress)
        if self.result is not None:
            return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.SUCCESS, result=self.result)
        return JobUpdate(job=self.job, token=self.token, status=UpdateStatus.RELEASED, reason=self.reason)


@dataclass(frozen=True, slots=True)
class PollOutcome:
    """Changes by an answered poll: pairs to enqueue, and pairs whose runs must stop."""

    assigned: tuple[Pair, ...] = ()
    lost: tuple[Pair, ...] = ()


class LeaseTable:
    """The jobs that a node holds. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Condition()
        self._held: dict[Pair, HeldJob] = {}

    # Called by the poll loop.

    def updates(self) -> tuple[JobUpdate, ...]:
        """Return the reports for the next poll: one for each owned job whose run is not stopping."""
        with self._lock:
            return tuple(
                held.update() for held in self._held.values() if held.is_owned and held.state is not LeaseState.STOPPING
            )

    def is_any_stopping(self) -> bool:
        """Return whether an owned job is missing in the reports because its run has not ended yet."""
        with self._lock:
            return any(held.is_owned and held.state is LeaseState.STOPPING for held in self._held.values())

    def busy(self) -> tuple[dict[str, Any], ...]:
        """Return the specifications of all jobs that occupy a slot: assigned, running or stopping."""
        with self._lock:
            return tuple(held.spec for held in self._held.values() if held.state is not LeaseState.FINISHED)

    def apply_response(self, reported: Iterable[JobUpdate], response: PollResponse, sent_at: float) -> PollOutcome:
        """Apply an answered poll that carried ``reported`` and was sent at ``sent_at`` (monotonic seconds)."""
        granted = {(lease.job, lease.token): lease.expires_in for lease in response.leases}
        with self._lock:
            lost = [pair for update in reported if (pair := self._settle(update, granted, sent_at))]
            assigned = [pair for assignment in response.assignments if (pair := self._accept(assignment, sent_at))]
            self._lock.notify_all()
        return PollOutcome(assigned=tuple(assigned), lost=tuple(lost))

    def forget_finished(self, reported: Iterable[JobUpdate]) -> None:
        """Drop finished jobs whose reports the service rejects; their leases expire."""
        with self._lock:
            for update in reported:
                if update.status is not UpdateStatus.IN_PROGRESS:
                    self._held.pop((update.job, update.token), None)
            self._lock.notify_all()

    def expire(self) -> tuple[Pair, ...]:
        """Stop every job whose lease has expired; return the pairs whose runs must stop."""
        now = self._clock()
        with self._lock:
            late = [
                held
                for held in self._held.values()
                if held.deadline <= now and held.state in (LeaseState.ASSIGNED, LeaseState.RUNNING)
            ]
            return tuple(held.pair for held in late if self._stop(held))

    def next_deadline(self) -> float | None:
        """Return when the first lease of an assigned or running job expires (monotonic seconds)."""
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
        """Release the assigned pairs whose message has not arrived for ``seconds``; return them."""
        now = self._clock()
        with self._lock:
            late = [
                held for held in self._held.values() if held.state is LeaseState.ASSIGNED and now - held.since > seconds
            ]
            for held in late:
                held.state = LeaseState.FINISHED
            return tuple(held.pair for held in late)

    def release(self, pairs: Iterable[Pair] | None = None) -> tuple[Pair, ...]:
        """Release these jobs (default: all) unfinished; return the pairs whose runs must stop."""
        with self._lock:
            chosen = list(self._held) if pairs is None else list(pairs)
            held = [self._held[pair] for pair in chosen if pair in self._held]
            return tuple(
                one.pair for one in held if one.state in (LeaseState.ASSIGNED, LeaseState.RUNNING) and self._stop(one)
            )

    def abandon_runs(self) -> tuple[Pair, ...]:
        """Treat runs that did not stop in time as ended, so that the last poll releases their jobs."""
        with self._lock:
            stuck = [held for held in self._held.values() if held.state is LeaseState.STOPPING]
            for held in stuck:
                self._end(held)
            return tuple(held.pair for held in stuck)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until no run is left; return False if ``seconds`` pass first."""
        with self._lock:
            return self._lock.wait_for(
                lambda: all(held.state is LeaseState.FINISHED for held in self._held.values()), timeout=seconds
            )

    # Called by runs.

    def begin(self, pair: Pair) -> HeldJob | None:
        """Start a pair; return None if it is not in state assigned."""
        with self._lock:
            held = self._held.get(pair)
            if held is None or held.state is not LeaseState.ASSIGNED:
                return None
            held.state = LeaseState.RUNNING
            held.since = self._clock()
            return held

    def is_stopped(self, pair: Pair) -> bool:
        """Return whether the run of this pair should end: it is lost, released or unknown."""
        with self._lock:
            held = self._held.get(pair)
            return held is None or held.state is not LeaseState.RUNNING

    def note_progress(self, pair: Pair, progress: Progress) -> None:
        """Store the progress of a run for the next poll."""
        with self._lock:
            held = self._held.get(pair)
            if held is not None:
                held.progress = progress

    def finish(self, pair: Pair, *, result: dict[str, Any] | None = None, reason: FailureReason | None = None) -> bool:
        """End a run; return True if its outcome will be reported, False if it was stopped before."""
        with self._lock:
            held = self._held.get(pair)
            if held is None or held.state not in (LeaseState.RUNNING, LeaseState.STOPPING):
                return False
            was_running = held.state is LeaseState.RUNNING
            if result is not None or was_running:
                held.result, held.reason = result, reason if result is None else None
            self._end(held)
            return was_running

    # The methods below are called with the lock held.

    def _settle(self, update: JobUpdate, granted: dict[Pair, float], sent_at: float) -> Pair | None:
        """Apply the response to one reported pair; return the pair if its run must stop."""
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
        held.is_owned = False
        if held.state is LeaseState.RUNNING:
            held.state = LeaseState.STOPPING
            return pair
        if held.state is not LeaseState.STOPPING:
            del self._held[pair]
        return None

    def _accept(self, assignment: Assignment, sent_at: float) -> Pair | None:
        """Add a new pair and return it; for a pair already held, only renew its lease."""
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
        """Stop a job; return True if a run has to end first, False if the job is released at once."""
        if held.state is LeaseState.RUNNING:
            held.state = LeaseState.STOPPING
            return True
        held.state = LeaseState.FINISHED
        self._lock.notify_all()
        return False

    def _end(self, held: HeldJob) -> None:
        if held.is_owned:
            held.state = LeaseState.FINISHED
        else:
            del self._held[held.pair]
        self._lock.notify_all()
