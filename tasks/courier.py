"""The node's way to its own threads: messages to the node's own queue, one or a few per answered poll.

A broker that refuses a message, or takes it and never delivers it, is *deaf*. A deaf node reports capacity 0 and
sends itself an echo from time to time; when one arrives it takes work again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import structlog
from celery import Celery

from tasks.leases import Pair
from tasks.queues import ECHO_TASK, MERGE_TASK

ECHO_SECONDS = 5.0
"""Pause between echoes; the worker throws older ones away, so they cannot pile up."""

log = structlog.get_logger(__name__)


class CeleryCourier:
    """Sends through a Celery app; set ``on_heard`` to learn of the end of a deafness."""

    def __init__(
        self,
        app: Celery,
        queue: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._queue = queue
        self.on_heard: Callable[[], object] = lambda: None
        self._clock = clock
        self._hearing = threading.Event()
        self._hearing.set()
        self._next_echo_at = 0.0

    @property
    def is_hearing(self) -> bool:
        """False while messages are not known to arrive."""
        return self._hearing.is_set()

    def send(self, pairs: Sequence[Pair]) -> bool:
        """Send one message with these pairs; False if the broker did not take it."""
        return self._publish(MERGE_TASK, [[list(pair) for pair in pairs]], expires=None)

    def lost(self) -> None:
        """A message that was taken did not arrive in time."""
        self._become_deaf("a message did not arrive")

    def knock(self) -> None:
        """While deaf: send an echo, at most one per ECHO_SECONDS."""
        if self.is_hearing or self._clock() < self._next_echo_at:
            return
        self._next_echo_at = self._clock() + ECHO_SECONDS
        self._publish(ECHO_TASK, [], expires=ECHO_SECONDS)

    def heard(self) -> None:
        """An echo arrived."""
        if not self.is_hearing:
            self._hearing.set()
            log.info("broker_heard")
            self.on_heard()

    def _publish(self, task: str, args: list[object], *, expires: float | None) -> bool:
        try:
            self._app.send_task(task, args=args, queue=self._queue, expires=expires, retry=False, ignore_result=True)
        except Exception as error:  # noqa: BLE001  each transport has its own classes; none of them may end the poll
            self._become_deaf(f"{type(error).__name__}: {error}")
            return False
        return True

    def _become_deaf(self, reason: str) -> None:
        if self.is_hearing:
            self._hearing.clear()
            self._next_echo_at = self._clock()
            log.warning("broker_deaf", queue=self._queue, reason=reason[:500])
