"""Objects that wait for their deletion, by the moment from which it may be ordered.

All sources of a job get the same moment, so the moments that stand in order are few, however many objects wait.
"""

from __future__ import annotations

import heapq


class DeletionLine:
    """Gives out ids by (moment, id); an id may be put in again."""

    def __init__(self) -> None:
        self._moments: list[int] = []
        self._ids: dict[int, list[str]] = {}

    def put(self, moment_ms: int, ulid: str) -> None:
        """Let an id wait until this moment is past."""
        ids = self._ids.get(moment_ms)
        if ids is None:
            self._ids[moment_ms] = [ulid]
            heapq.heappush(self._moments, moment_ms)
        else:
            ids.append(ulid)

    def take(self, now_ms: int, count: int) -> list[str]:
        """Return up to ``count`` ids whose moment is strictly past, those first that have waited longest."""
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
