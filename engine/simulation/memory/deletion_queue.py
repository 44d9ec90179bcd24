"""Queue of objects to delete, sorted by the time from which they may be deleted.

All sources of a job get the same time, so the number of distinct times is small.
"""

from __future__ import annotations

import heapq


class DeletionQueue:
    """A queue of ids sorted by (time, id); an id may be added again."""

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._ids: dict[int, list[str]] = {}

    def put(self, moment_ms: int, ulid: str) -> None:
        """Add an id that may be taken after ``moment_ms``."""
        ids = self._ids.get(moment_ms)
        if ids is None:
            self._ids[moment_ms] = [ulid]
            heapq.heappush(self._moments, moment_ms)
        else:
            ids.append(ulid)

    def take(self, now_ms: int, count: int) -> list[str]:
        """Remove and return up to ``count`` ids whose time is strictly past, earliest first."""
        taken: list[str] = []
        while self._moments and self._moments[0] < now_ms and len(taken) < count:
            ids = sorted(self._ids[self._moments[0]])
            room = count - len(taken)
            taken += ids[:room]
            if len(ids) > room:
                self._ids[self._moments[0]] = ids[room:]
            else:
                del self._ids[heapq.heappop(self._moments)]
        return taken
