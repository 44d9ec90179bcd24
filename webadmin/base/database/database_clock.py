"""The database's clock as this process last read it, continued by the monotonic clock.

Segment writers and distributors use it: it continues while the database is unavailable and does not depend on a
machine's wall clock. Before the first reading it is the machine's wall clock.
"""

from __future__ import annotations

import time

from webadmin.base.database import dialect

_monotonic_at_epoch_ms: float | None = None


def read_database_clock() -> None:
    """Read the database's clock; on a database error, keep the last reading."""
    global _monotonic_at_epoch_ms
    clock_ms = dialect.clock_ms()
    _monotonic_at_epoch_ms = time.monotonic() * 1000 - clock_ms


def database_clock_ms() -> int:
    """Return the database's time without a query, unix milliseconds."""
    if _monotonic_at_epoch_ms is None:
        return time.time_ns() // 1_000_000
    return round(time.monotonic() * 1000 - _monotonic_at_epoch_ms)
