"""Exponential back-off of failed scans, plans and reads: the delay doubles up to 1 h."""

from __future__ import annotations

FIRST_MS = 30_000
MOST_MS = 3_600_000
FAILURES_MAX = 20
"""Failures beyond this number do not increase the delay."""


def again_at_ms(now_ms: int, failures: int) -> int:
    """Return the time of the next attempt after this number of consecutive failures (at least 1)."""
    return now_ms + min(MOST_MS, FIRST_MS << min(failures - 1, FAILURES_MAX))
