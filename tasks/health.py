"""Back-off of a node whose batches fail, so that one broken node does not fail every job of the schedule.

A damaged object is an error of the job. Any other error (no disk space, no object store, a broken installation) may be
an error of the node, and a job that fails several times is parked. After consecutive failures of that kind the node
backs off exponentially and leaves the jobs to other nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from engine.core.errors import BadObject, MergeRefused
from engine.storage.model import ObjectNotFound
from tasks.merger import Outcome

FAILED_BATCHES_BEFORE_BACKOFF = 2
"""Consecutive failed batches at which the back-off starts."""
BACKOFF_SECONDS = 5.0
BACKOFF_SECONDS_MAX = 120.0

JOB_DATA_ERRORS = (BadObject, MergeRefused, ObjectNotFound)


class Health:
    """Counts consecutive failed batches. Thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._backoff_until = 0.0

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Record the outcomes of a batch; the caller leaves out stopped jobs."""
        node_errors = [isinstance(outcome, Exception) and not is_data_error(outcome) for outcome in outcomes]
        if not node_errors:
            return
        with self._lock:
            if not all(node_errors):
                self._failed_in_a_row = 0
                return
            self._failed_in_a_row += 1
            excess = self._failed_in_a_row - FAILED_BATCHES_BEFORE_BACKOFF
            if excess >= 0:
                self._backoff_until = self._clock() + min(BACKOFF_SECONDS * 2 ** min(excess, 16), BACKOFF_SECONDS_MAX)

    def is_backing_off(self) -> bool:
        """Return whether the node should request no work now."""
        with self._lock:
            return self._clock() < self._backoff_until


def is_data_error(error: Exception) -> bool:
    """Return whether the data of the job causes an error, so that it would fail on every node."""
    return isinstance(error, JOB_DATA_ERRORS) or getattr(error, "section", "") != ""
