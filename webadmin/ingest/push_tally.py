"""Count accepted and rejected pushes in memory, so that many invalid pushes do not cause as many database writes."""

from __future__ import annotations

import threading
from dataclasses import dataclass

KEYS_MAX = 10_000
OTHERS = "(others)"
"""Tenant name for rejections once there are too many names; not a valid name of a tenant."""


@dataclass(slots=True)
class Sum:
    """Counts since the last ``take``."""

    count: int = 0
    bytes: int = 0
    message: str = ""


Sums = dict[tuple[str, str], Sum]
"""Sums by (tenant, outcome)."""


class PushTally:
    """Thread-safe counts between two flushes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Sums = {}

    def add(self, tenant: str, outcome: str, *, count: int = 1, size: int = 0, message: str = "") -> None:
        """Count profiles of one outcome; ``message`` replaces the last message."""
        with self._lock:
            key = (tenant, outcome)
            if key not in self._sums and len(self._sums) >= KEYS_MAX:
                key = (OTHERS, outcome)
            found = self._sums.setdefault(key, Sum())
            found.count += count
            found.bytes += size
            found.message = message or found.message

    def take(self) -> Sums:
        """Return the sums and reset them."""
        with self._lock:
            sums, self._sums = self._sums, {}
        return sums

    def give_back(self, sums: Sums) -> None:
        """Add sums again that could not be stored."""
        for (tenant, outcome), found in sums.items():
            self.add(tenant, outcome, count=found.count, size=found.bytes, message=found.message)
