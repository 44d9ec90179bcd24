"""The compactor node: polls the service, hands the work to its own threads, renews, reports, gives back.

One thread polls. Each poll carries reports, renewals and the wish for work; its assignments go to the node's own queue
as one message (long jobs have one each), and the Celery thread that receives it runs them as one batch. The loop never
waits for the broker or for a merge: a deaf broker costs capacity, not leases.
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
from tasks.batches import Batches
from tasks.errors import CredentialRefused, MergerDied, PollRefused, ServiceUnavailable
from tasks.health import Health
from tasks.leases import LeaseTable, Pair
from tasks.merger import Merger
from tasks.metrics import node_metrics
from tasks.settings import NodeSettings
from tasks.specs import takes_long

JITTER = 0.2
"""Share by which a pause varies, so that a fleet does not poll in step."""
PAUSE_SECONDS_MAX = 5.0
"""Longest pause after failed polls; well below a lease, so that one answered poll still saves the jobs."""
MESSAGE_SECONDS_MAX = 10.0
"""How long an assignment may wait for its message before the broker counts as deaf."""
STOP_SECONDS_MAX = 1.0
"""How long a clean shutdown waits for runs to notice; then their jobs are given back anyway, the token guards."""
RESTART_SECONDS = 10.0
"""Pause before a merger that did not get ready is tried again."""
UNSURE_SECONDS = 60.0
"""How long after a lost answer the polls say what was heard: longer than a service could take to act on a poll."""
TASK_MEMORY_BYTES = 512 << 20
"""What a job is expected to need when its specification does not say."""

log = structlog.get_logger(__name__)


class Service(Protocol):
    """What the node needs of the service."""

    def poll(self, request: PollRequest) -> PollResponse: ...


class Courier(Protocol):
    """The node's way to its own threads. ``is_hearing`` is False while messages are not known to arrive."""

    @property
    def is_hearing(self) -> bool: ...

    def send(self, pairs: Sequence[Pair]) -> bool:
        """Send one message; False if the broker did not take it."""

    def lost(self) -> None:
        """A message that was taken did not arrive in time."""

    def knock(self) -> None:
        """While deaf: send an echo, if none is on its way; its arrival ends the deafness."""


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
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._merger_is_ready = threading.Event()
        self._failures = 0
        self._heard = 0
        self._unsure_until = 0.0
        self.on_merger_died: Callable[[], object] = lambda: None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to poll; work is taken as soon as the merger has proved itself."""
        log.info("node_started", worker=self._name, service=self._settings.service_url)
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
        self._news.set()

    def request_stop(self) -> None:
        """Take no more work and give back what is held, without waiting; safe in a signal handler."""
        if not self._stopping.is_set():
            self._stopping.set()
            self._news.set()

    def close(self) -> None:
        """Give back what is held, tell the service, and return when that is done."""
        self.request_stop()
        for thread in self._threads[1:]:
            thread.join()
        log.info("node_stopped", worker=self._name)

    def capacity(self) -> int:
        """How many more jobs can start now: cores not taken, within what the memory budget leaves."""
        if self._stopping.is_set() or not self._merger_is_ready.is_set() or not self._courier.is_hearing:
            return 0
        if self._health.is_resting():
            return 0
        busy = self._table.busy()
        free_bytes = self._settings.memory_bytes - sum(_memory_bytes(spec) for spec in busy)
        free_slots = self._settings.capacity - len(busy)
        # With nothing else running one job is always tried: a budget below one job would starve the node for ever.
        return max(min(free_slots, free_bytes // TASK_MEMORY_BYTES), 0 if busy else 1)

    def running_jobs(self) -> int:
        """How many jobs take up a slot."""
        return len(self._table.busy())

    def is_ready(self) -> bool:
        """Whether the merger has proved itself."""
        return self._merger_is_ready.is_set()

    def answer_lost(self) -> None:
        """Note that a poll got no answer: the service may have given out jobs that we know nothing of."""
        self._unsure_until = self._clock() + UNSURE_SECONDS

    def poll_once(self) -> bool:
        """Poll; True if the service answered."""
        self._look_after_held()
        heard = self._heard_for_sure()  # before the updates: a run that ends in between is then among them
        request = PollRequest(
            worker=self._name,
            build=VERSION,
            capacity=self.capacity(),
            updates=self._table.updates(),
            heard=heard,
        )
        sent_at = self._clock()
        try:
            response = self._service.poll(request)
        except (PollRefused, ServiceUnavailable, CredentialRefused) as error:
            node_metrics.count("lithify_node_polls_total", "failed")
            self._bear(error, request)
            return False
        node_metrics.count("lithify_node_polls_total", "answered")
        self._take_in(request, response, sent_at)
        return True

    def _bear(self, error: LithifyError, request: PollRequest) -> None:
        if isinstance(error, PollRefused):
            # Repeating the reports that made it refuse would keep every other job from being renewed.
            self._table.forget_finished(request.updates)
            log.error("poll_refused", reason=str(error))
        else:
            self.answer_lost()
            log.warning("poll_failed", error=error.code, reason=str(error))

    def _heard_for_sure(self) -> int:
        """What to say that we heard: nothing while all is well, or while there is a job that the reports leave out."""
        is_unsure = self._clock() < self._unsure_until
        return self._heard if is_unsure and not self._table.is_any_stopping() else 0

    def _take_in(self, request: PollRequest, response: PollResponse, sent_at: float) -> None:
        self._heard = max(self._heard, response.serial)
        outcome = self._table.take_in(request.updates, response, sent_at)
        for job, _ in outcome.lost:
            _note_lost(job, "not granted")
        self._batches.stop(outcome.lost)
        specs = {(given.job, given.token): given.spec for given in response.assignments}
        for pairs in messages_of(outcome.assigned, specs):
            if self._stopping.is_set() or not self._courier.send(pairs):
                self._table.give_back(pairs)
                log.warning("jobs_given_back", jobs=len(pairs), why="no message could be sent")
                self.wake()

    def _look_after_held(self) -> None:
        """Stop what has no lease any more, give back what never started, knock on a deaf broker."""
        expired = self._table.expire()
        for job, _ in expired:
            _note_lost(job, "not renewed in time")
        self._batches.stop(expired)
        if unheard := self._table.overdue(MESSAGE_SECONDS_MAX):
            log.warning("jobs_given_back", jobs=len(unheard), why="their message did not arrive")
            self._courier.lost()
        if not self._courier.is_hearing:
            self._courier.knock()

    def _loop(self) -> None:
        while not self._stopping.is_set():
            self._news.clear()
            self._failures = 0 if self._poll_guarded() else self._failures + 1
            self._news.wait(self._pause_seconds())
        self._return_all()

    def _poll_guarded(self) -> bool:
        try:
            return self.poll_once()
        except Exception:  # the loop must outlive a mistake in one poll, or every lease is lost with it
            log.exception("poll_crashed")
            return False

    def _pause_seconds(self) -> float:
        pause = min(self._settings.poll_seconds * 2 ** min(self._failures, 8), PAUSE_SECONDS_MAX)
        pause = max(pause, self._settings.poll_seconds) * random.uniform(1 - JITTER, 1 + JITTER)
        if (deadline := self._table.next_deadline()) is not None:
            pause = min(pause, max(deadline - self._clock(), 0) / 3 + 0.01)
        return pause

    def _return_all(self) -> None:
        """The clean end: stop the runs, wait a little, say what finished, give back the rest."""
        self._batches.stop(self._table.give_back())
        self._table.wait_until_idle(STOP_SECONDS_MAX)
        self._table.abandon_runs()
        if self._table.updates():
            self._poll_guarded()

    def _make_ready(self) -> None:
        while not self._stopping.is_set():
            started = self._clock()
            try:
                self._merger.start()
            except Exception as error:  # noqa: BLE001  a node that is not ready takes no work and says why
                code = error.code if isinstance(error, LithifyError) else type(error).__name__
                log.error("node_not_ready", error=code, reason=str(error)[:1000])
                self._stopping.wait(RESTART_SECONDS)
            else:
                self._merger_is_ready.set()
                log.info("node_ready", worker=self._name, state="ready", seconds=round(self._clock() - started, 3))
                self.wake()
                return


def messages_of(assigned: Sequence[Pair], specs: Mapping[Pair, dict[str, Any]]) -> list[list[Pair]]:
    """Return what goes as one message each: every long job alone, so that it ends by itself, all others together."""
    long = [[pair] for pair in assigned if takes_long(specs[pair])]
    rest = [pair for pair in assigned if not takes_long(specs[pair])]
    return [*long, rest] if rest else long


def _note_lost(job: str, why: str) -> None:
    log.warning("lease_lost", job=job, why=why)
    node_metrics.count("lithify_node_leases_lost_total")


def _memory_bytes(spec: dict[str, Any]) -> int:
    wanted = spec.get("task_memory_bytes")
    return wanted if isinstance(wanted, int) and wanted > 0 else TASK_MEMORY_BYTES
