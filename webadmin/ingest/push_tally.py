"""Counts what came and what was refused in memory, so that a flood of bad pushes is not a flood of writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

KEYS_MAX = 10_000
OTHERS = "(others)"
"""The tenant under which refusals are counted once there are too many names; an impossible name for a real one."""


@dataclass(slots=True)
class Sum:
    """What was counted since the last time it was taken."""

    count: int = 0
    bytes: int = 0
    message: str = ""


Sums = dict[tuple[str, str], Sum]
"""Sums by tenant and outcome."""


class PushTally:
    """Adds up between two flushes; any thread may add."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Sums = {}

    def add(self, tenant: str, outcome: str, *, count: int = 1, size: int = 0, message: str = "") -> None:
        """Count profiles of one outcome; ``message`` replaces the last one."""
        with self._lock:
            key = (tenant, outcome)
            if key not in self._sums and len(self._sums) >= KEYS_MAX:
                key = (OTHERS, outcome)
            found = self._sums.setdefault(key, Sum())
            found.count += count
            found.bytes += size
            found.message = message or found.message

    def take(self) -> Sums:
        """Return the sums and begin anew."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return sums

    def give_back(self, sums: Sums) -> None:
        """Take back what could not be written down."""
        for (tenant, outcome), found in sums.items():
            self.add(tenant, outcome, count=found.count, size=found.bytes, message=found.message)
