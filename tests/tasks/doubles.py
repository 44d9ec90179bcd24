"""Stand-ins for what a node talks to, driven by the test: a service with a little schedule, a courier, a merger."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from engine.core.errors import LithifyError
from engine.protocol.messages import (
    Assignment,
    JobUpdate,
    LeaseGrant,
    PollRequest,
    PollResponse,
    Progress,
    UpdateStatus,
)
from tasks.leases import Pair
from tasks.merger import Outcome

DEADLINE_SECONDS = 60.0


class ScheduleDouble:
    """Answers polls as the service would: leases by token, assignments up to capacity; remembers every request."""

    def __init__(self, *, lease_seconds: float = 15.0) -> None:
        self.lease_seconds = lease_seconds
        self.waiting: list[Pair] = []
        self.leased: set[Pair] = set()
        self.results: dict[Pair, dict[str, Any] | None] = {}
        self.released: list[JobUpdate] = []
        self.requests: list[PollRequest] = []
        self.trouble: LithifyError | None = None
        self.serial = 0
        self._changed = threading.Condition()

    def poll(self, request: PollRequest) -> PollResponse:
        """Settle the reports, then assign."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            if self.trouble is not None:
                raise self.trouble
            leases = [self._lease(update) for update in request.updates if self._settle(update)]
            new = [self.waiting.pop(0) for _ in range(min(request.capacity, len(self.waiting)))]
            self.leased.update(new)
            assigned = tuple(self._assign(pair) for pair in new)
            return PollResponse(leases=tuple(leases), assignments=assigned, serial=self.serial)

    def offer(self, *pairs: Pair) -> None:
        """Put jobs on the schedule."""
        with self._changed:
            self.waiting.extend(pairs)

    def revoke(self, pair: Pair) -> None:
        """Take a lease away."""
        with self._changed:
            self.leased.discard(pair)

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds after some poll; AssertionError after the deadline."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout=DEADLINE_SECONDS), "the node did not get there"

    def wait_for_polls(self, count: int) -> None:
        """Wait for so many further polls."""
        target = len(self.requests) + count
        self.wait_for(lambda: len(self.requests) >= target)

    def _settle(self, update: JobUpdate) -> bool:
        pair = (update.job, update.token)
        if pair not in self.leased:
            return False
        if update.status is UpdateStatus.IN_PROGRESS:
            return True
        self.leased.discard(pair)
        if update.status is UpdateStatus.SUCCESS:
            self.results[pair] = update.result
        else:
            self.released.append(update)
        return False

    def _lease(self, update: JobUpdate) -> LeaseGrant:
        return LeaseGrant(job=update.job, token=update.token, expires_in=self.lease_seconds)

    def _assign(self, pair: Pair) -> Assignment:
        return Assignment(job=pair[0], token=pair[1], spec={"job": pair[0]}, expires_in=self.lease_seconds)


class CourierDouble:
    """Delivers each message in a thread of its own, as often as set; or refuses; or drops it."""

    def __init__(self, *, deliveries: int = 1) -> None:
        self.deliveries = deliveries
        self.is_connected = True
        self.refuses = False
        self.run: Callable[[Sequence[Pair]], object] = lambda pairs: None
        self.messages: list[tuple[Pair, ...]] = []
        self.probes = 0
        self._threads: list[threading.Thread] = []

    def send(self, pairs: Sequence[Pair]) -> bool:
        """Deliver, or refuse and be disconnected."""
        if self.refuses:
            self.is_connected = False
            return False
        self.messages.append(tuple(pairs))
        for _ in range(self.deliveries):
            thread = threading.Thread(target=self.run, args=(tuple(pairs),))
            self._threads.append(thread)
            thread.start()
        return True

    def note_undelivered(self) -> None:
        """Be disconnected."""
        self.is_connected = False

    def probe_broker(self) -> None:
        """Reconnect if messages are accepted."""
        self.probes += 1
        self.is_connected = not self.refuses

    def join(self) -> None:
        """Wait for every delivery to end."""
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()


class MergerDouble:
    """Merges nothing: each batch waits at a gate and answers with what the test prepared."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.outcomes: dict[str, Outcome] = {}
        self.crash: Exception | None = None
        self.merged: list[str] = []
        self.interrupted: list[str] = []
        self.start_trouble: list[Exception] = []
        self.ignores_stops = False
        self.stopped = False

    def start(self) -> None:
        """Fail as often as prepared."""
        if self.start_trouble:
            raise self.start_trouble.pop(0)

    def merge(
        self,
        batch: str,
        specs: Mapping[str, dict[str, Any]],
        *,
        cancelled: Callable[[str], bool],
        progress: Callable[[str, Progress], None],
    ) -> Mapping[str, Outcome]:
        """Wait at the gate, then answer."""
        jobs = list(specs)
        self.merged.extend(jobs)
        for job in jobs:
            progress(job, Progress(done=1, total=2, phase="merge"))
        self.entered.release()
        while not self.gate.wait(0.01):
            if batch in self.interrupted and not self.ignores_stops:
                raise InterruptedError("interrupted")
        if self.crash is not None:
            raise self.crash
        return {job: self.outcomes.get(job, {"blocks": [{"id": job}]}) for job in jobs}

    def interrupt(self, batch: str) -> None:
        """Let the batch end."""
        self.interrupted.append(batch)

    def stop(self) -> None:
        """Note it."""
        self.stopped = True

    def wait_entered(self, batches: int = 1) -> None:
        """Wait until so many further batches are at the gate or past it."""
        for _ in range(batches):
            assert self.entered.acquire(timeout=DEADLINE_SECONDS)
