"""The database's clock as this process last read it, continued by the monotonic clock.

Segment writers and distributors go by it: it goes on while the database is away, and nobody who sets a machine's wall
clock moves it. Before the first reading it is the machine's wall clock.
"""

from __future__ import annotations

import time

from webadmin.base.database import dialect

_monotonic_at_epoch_ms: float | None = None


def read_database_clock() -> None:
    """Read the database's clock; an error of the database passes and keeps the last reading."""
    global _monotonic_at_epoch_ms
    clock_ms = dialect.clock_ms()
    _monotonic_at_epoch_ms = time.monotonic() * 1000 - clock_ms


def database_clock_ms() -> int:
    """Return the database's time without asking it, unix milliseconds."""
    if _monotonic_at_epoch_ms is None:
        return time.time_ns() // 1_000_000
    return round(time.monotonic() * 1000 - _monotonic_at_epoch_ms)
