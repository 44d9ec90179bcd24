"""Whether this node should take work: one that fails whatever it is given must not burn its way through the schedule.

A damaged object is the job's trouble. Anything else (no disk, no object store, a broken installation) may be the
node's own, and a job that fails a few times is parked; so after such failures in a row the node rests, longer each
time, and leaves the jobs to others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from engine.core.errors import BadObject, MergeRefused
from engine.storage.model import ObjectNotFound
from tasks.merger import Outcome

BATCHES_BEFORE_REST = 2
"""Failed batches in a row that are taken for bad luck."""
REST_SECONDS = 5.0
REST_SECONDS_MAX = 120.0

JOBS_OWN_TROUBLE = (BadObject, MergeRefused, ObjectNotFound)


class Health:
    """Counts failed batches in a row. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed_in_a_row = 0
        self._rests_until = 0.0

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Note how a batch ended; jobs that were stopped are left out by the caller."""
        troubles = [isinstance(outcome, Exception) and not is_jobs_own(outcome) for outcome in outcomes]
        if not troubles:
            return
        with self._lock:
            if not all(troubles):
                self._failed_in_a_row = 0
                return
            self._failed_in_a_row += 1
            rests = self._failed_in_a_row - BATCHES_BEFORE_REST
            if rests >= 0:
                self._rests_until = self._clock() + min(REST_SECONDS * 2 ** min(rests, 16), REST_SECONDS_MAX)

    def is_resting(self) -> bool:
        """Whether the node should ask for no work now."""
        with self._lock:
            return self._clock() < self._rests_until


def is_jobs_own(error: Exception) -> bool:
    """Tell whether an error comes from the job's data, so that another node would meet it too."""
    return isinstance(error, JOBS_OWN_TROUBLE) or getattr(error, "section", "") != ""
