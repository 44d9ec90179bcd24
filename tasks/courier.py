"""Publishes the messages of a node to its own queue, one or a few per answered poll.

If the broker rejects a message, or accepts it and does not deliver it, the node counts as *disconnected*: it reports
capacity 0 and sends itself an echo at intervals. When an echo arrives, the node accepts work again.
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
"""Interval between echoes; the worker drops older ones, so that they cannot accumulate."""

log = structlog.get_logger(__name__)


class CeleryCourier:
    """Sends by a Celery app; ``on_reconnected`` is called when an echo arrives after a disconnection."""

    def __init__(
        self,
        app: Celery,
        queue: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._queue = queue
        self.on_reconnected: Callable[[], object] = lambda: None
        self._clock = clock
        self._connected = threading.Event()
        self._connected.set()
        self._next_echo_at = 0.0

    @property
    def is_connected(self) -> bool:
        """False while messages are not known to arrive."""
        return self._connected.is_set()

    def send(self, pairs: Sequence[Pair]) -> bool:
        """Send one message with these pairs; return False if the broker rejects it."""
        return self._publish(MERGE_TASK, [[list(pair) for pair in pairs]], expires=None)

    def note_undelivered(self) -> None:
        """Mark the node disconnected: an accepted message was not delivered in time."""
        self._mark_disconnected("a message was not delivered in time")

    def probe_broker(self) -> None:
        """Send an echo if the node is disconnected, at most one per ECHO_SECONDS."""
        if self.is_connected or self._clock() < self._next_echo_at:
            return
        self._next_echo_at = self._clock() + ECHO_SECONDS
        self._publish(ECHO_TASK, [], expires=ECHO_SECONDS)

    def note_echo(self) -> None:
        """Mark the node connected: an echo arrived."""
        if not self.is_connected:
            self._connected.set()
            log.info("broker_reconnected")
            self.on_reconnected()

    def _publish(self, task: str, args: list[object], *, expires: float | None) -> bool:
        try:
            self._app.send_task(task, args=args, queue=self._queue, expires=expires, retry=False, ignore_result=True)
        except Exception as error:  # noqa: BLE001  each transport has its own error classes; none may end the poll loop
            self._mark_disconnected(f"{type(error).__name__}: {error}")
            return False
        return True

    def _mark_disconnected(self, reason: str) -> None:
        if self.is_connected:
            self._connected.clear()
            self._next_echo_at = self._clock()
            log.warning("broker_disconnected", queue=self._queue, reason=reason[:500])
