"""The compactor node: polls the service, runs the assigned jobs in its threads, renews leases, reports and releases.

One thread polls. Each poll carries reports, lease renewals and the free capacity. Its assignments are published to the
queue of the node as one message (long jobs have one each), and the Celery thread that receives it runs them as one
batch. The loop never waits for the broker or for a merge: without a broker the node loses capacity, not leases.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import structlog

from engine.core.errors import LithifyError
from engine.core.version import VERSION
from engine.protocol.messages import PollRequest, PollResponse
from engine.settings.node import NodeSettings
from tasks.batches import Batches
from tasks.errors import CredentialRefused, MergerDied, PollRefused, ServiceUnavailable
from tasks.health import Health
from tasks.leases import LeaseTable, Pair
from tasks.merger import Merger
from tasks.metrics import node_metrics
from tasks.specs import takes_long

JITTER = 0.2
"""Share by which a pause varies, so that nodes do not poll at the same time."""
PAUSE_SECONDS_MAX = 5.0
"""Longest pause after failed polls; well below a lease, so that the next answered poll still renews it."""
MESSAGE_SECONDS_MAX = 10.0
"""Time for an assignment to arrive as a message; after it the broker counts as disconnected."""
STOP_SECONDS_MAX = 1.0
"""Time that a clean shutdown waits for runs to end; then their jobs are released, protected by fencing tokens."""
RESTART_SECONDS = 10.0
"""Pause before a failed start of the merger is retried."""
UNCONFIRMED_SECONDS = 60.0
"""Time after a lost response in which polls carry the last serial; longer than the service takes to handle a poll."""
TASK_MEMORY_BYTES = 512 << 20
"""Expected memory of a job whose specification does not state it."""

log = structlog.get_logger(__name__)


class Service(Protocol):
    """The operation of the service that a node uses."""

    def poll(self, request: PollRequest) -> PollResponse: ...


class Courier(Protocol):
    """Publishes messages to the queue of the node. ``is_connected`` is False while the broker may not deliver them."""

    @property
    def is_connected(self) -> bool: ...

    def send(self, pairs: Sequence[Pair]) -> bool:
        """Send one message; return False if the broker rejects it."""

    def note_undelivered(self) -> None:
        """Mark the node disconnected: an accepted message was not delivered in time."""

    def probe_broker(self) -> None:
        """Send an echo if the node is disconnected; its arrival marks the node connected."""


class Node:
    """See the module's docstring. ``start`` once, ``close`` once; ``run`` and ``wake`` from any thread."""

    def __init__(
        self,
        settings: NodeSettings,
        *,
        name: str,
        service: Service,
        courier: Courier,
        merger: Merger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._name = name
        self._service = service
        self._courier = courier
        self._merger = merger
        self._clock = clock
        self._table = LeaseTable(clock)
        self._health = Health(clock)
        self._batches = Batches(self._table, merger, self._health)
        self._wake_event = threading.Event()
        self._stopping = threading.Event()
        self._merger_is_ready = threading.Event()
        self._failures = 0
        self._last_serial = 0
        self._unconfirmed_until = 0.0
        self.on_merger_died: Callable[[], object] = lambda: None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start polling; work is accepted as soon as the merger has passed its known-answer test."""
        log.info("node_started", worker=self._name, service=self._settings.SERVICE_URL)
        for target in (self._make_ready, self._loop):
            thread = threading.Thread(target=target, name=f"node{target.__name__}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def run(self, pairs: Iterable[Pair]) -> int:
        """Run the jobs of one message; see ``Batches.run``. Called in a thread of the pool."""
        try:
            return self._batches.run(pairs)
        except MergerDied as error:
            log.error("merger_died", reason=str(error))
            self._merger_is_ready.clear()
            self.on_merger_died()
            return 0
        finally:
            self.wake()

    def wake(self) -> None:
        """Poll now."""
        self._wake_event.set()

    def request_stop(self) -> None:
        """Accept no more work and release held jobs, without waiting; safe in a signal handler."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._wake_event.set()

    def close(self) -> None:
        """Release held jobs, report to the service, and return when that is done."""
        self.request_stop()
        for thread in self._threads[1:]:
            thread.join()
        log.info("node_stopped", worker=self._name)

    def capacity(self) -> int:
        """Return how many more jobs can start now: free slots, limited by free memory."""
        if self._stopping.is_set() or not self._merger_is_ready.is_set() or not self._courier.is_connected:
            return 0
        if self._health.is_backing_off():
            return 0
        busy = self._table.busy()
        free_bytes = self._settings.NODE_MEMORY_BYTES - sum(_memory_bytes(spec) for spec in busy)
        free_slots = self._settings.NODE_CAPACITY - len(busy)
        # An idle node always accepts one job: with a budget below one job it would never run any.
        return max(min(free_slots, free_bytes // TASK_MEMORY_BYTES), 0 if busy else 1)

    def running_jobs(self) -> int:
        """Return how many jobs occupy a slot."""
        return len(self._table.busy())

    def is_ready(self) -> bool:
        """Return whether the merger has passed its known-answer test."""
        return self._merger_is_ready.is_set()

    def note_response_lost(self) -> None:
        """Note that a poll got no response: the service may have assigned jobs that this node does not know."""
        self._unconfirmed_until = self._clock() + UNCONFIRMED_SECONDS

    def poll_once(self) -> bool:
        """Poll; return True if the service answered."""
        self._check_held_jobs()
        serial = self._confirmed_serial()  # read before the updates, so that they include a run that ends in between
        request = PollRequest(
            worker=self._name,
            build=VERSION,
            capacity=self.capacity(),
            updates=self._table.updates(),
            last_serial=serial,
        )
        sent_at = self._clock()
        try:
            response = self._service.poll(request)
        except (PollRefused, ServiceUnavailable, CredentialRefused) as error:
            node_metrics.count("lithify_node_polls_total", "failed")
            self._on_poll_error(error, request)
            return False
        node_metrics.count("lithify_node_polls_total", "answered")
        self._apply_response(request, response, sent_at)
        return True

    def _on_poll_error(self, error: LithifyError, request: PollRequest) -> None:
        if isinstance(error, PollRefused):
            # With the rejected reports in it, every further poll would fail and renew no lease.
            self._table.forget_finished(request.updates)
            log.error("poll_refused", reason=str(error))
        else:
            self.note_response_lost()
            log.warning("poll_failed", error=error.code, reason=str(error))

    def _confirmed_serial(self) -> int:
        """Return the serial of the last response, or 0 if no response was lost lately or the reports are incomplete."""
        is_unconfirmed = self._clock() < self._unconfirmed_until
        return self._last_serial if is_unconfirmed and not self._table.is_any_stopping() else 0

    def _apply_response(self, request: PollRequest, response: PollResponse, sent_at: float) -> None:
        self._last_serial = max(self._last_serial, response.serial)
        outcome = self._table.apply_response(request.updates, response, sent_at)
        for job, _ in outcome.lost:
            _note_lost(job, "not renewed by the service")
        self._batches.stop(outcome.lost)
        specs = {(given.job, given.token): given.spec for given in response.assignments}
        for pairs in messages_of(outcome.assigned, specs):
            if self._stopping.is_set() or not self._courier.send(pairs):
                self._table.release(pairs)
                log.warning("jobs_released", jobs=len(pairs), reason="no message could be published")
                self.wake()

    def _check_held_jobs(self) -> None:
        """Stop jobs with expired leases, release jobs that never started, probe a disconnected broker."""
        expired = self._table.expire()
        for job, _ in expired:
            _note_lost(job, "not renewed in time")
        self._batches.stop(expired)
        if undelivered := self._table.overdue(MESSAGE_SECONDS_MAX):
            log.warning("jobs_released", jobs=len(undelivered), reason="their message was not delivered in time")
            self._courier.note_undelivered()
        if not self._courier.is_connected:
            self._courier.probe_broker()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._wake_event.clear()
            self._failures = 0 if self._poll_guarded() else self._failures + 1
            self._wake_event.wait(self._pause_seconds())
        self._release_all()

    def _poll_guarded(self) -> bool:
        try:
            return self.poll_once()
        except Exception:  # an error in one poll must not end the loop, or every lease expires
            log.exception("poll_crashed")
            return False

    def _pause_seconds(self) -> float:
        pause = min(self._settings.POLL_SECONDS * 2.0 ** min(self._failures, 8), PAUSE_SECONDS_MAX)
        pause = max(pause, self._settings.POLL_SECONDS) * random.uniform(1 - JITTER, 1 + JITTER)
        if (deadline := self._table.next_deadline()) is not None:
            pause = min(pause, max(deadline - self._clock(), 0) / 3 + 0.01)
        return pause

    def _release_all(self) -> None:
        """Stop the runs, wait STOP_SECONDS_MAX, report finished jobs and release the others."""
        self._batches.stop(self._table.release())
        self._table.wait_until_idle(STOP_SECONDS_MAX)
        self._table.abandon_runs()
        if self._table.updates():
            self._poll_guarded()

    def _make_ready(self) -> None:
        while not self._stopping.is_set():
            started = self._clock()
            try:
                self._merger.start()
            except Exception as error:  # noqa: BLE001  any error: log it, accept no work and retry
                code = error.code if isinstance(error, LithifyError) else type(error).__name__
                log.error("node_not_ready", error=code, reason=str(error)[:1000])
                self._stopping.wait(RESTART_SECONDS)
            else:
                self._merger_is_ready.set()
                log.info("node_ready", worker=self._name, state="ready", seconds=round(self._clock() - started, 3))
                self.wake()
                return


def messages_of(assigned: Sequence[Pair], specs: Mapping[Pair, dict[str, Any]]) -> list[list[Pair]]:
    """Return the pairs of each message: one message per long job, reported alone, and one for all others."""
    long = [[pair] for pair in assigned if takes_long(specs[pair])]
    rest = [pair for pair in assigned if not takes_long(specs[pair])]
    return [*long, rest] if rest else long


def _note_lost(job: str, reason: str) -> None:
    log.warning("lease_lost", job=job, reason=reason)
    node_metrics.count("lithify_node_leases_lost_total")


def _memory_bytes(spec: dict[str, Any]) -> int:
    stated = spec.get("task_memory_bytes")
    return stated if isinstance(stated, int) and stated > 0 else TASK_MEMORY_BYTES
