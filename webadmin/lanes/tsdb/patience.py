"""What is said of work that broke off, and how long it is left alone: twice as long each time, up to an hour."""

from __future__ import annotations

FIRST_MS = 30_000
MOST_MS = 3_600_000
FAILURES_MAX = 20
"""More make no difference."""


def again_at_ms(now_ms: int, failures: int) -> int:
    """Return when to try again after so many failures in a row, at least one."""
    return now_ms + min(MOST_MS, FIRST_MS << min(failures - 1, FAILURES_MAX))


def in_words(error: Exception) -> str:
    """Return what a database can keep of an error: its class and what it says, without NUL."""
    return f"{type(error).__name__}: {error}".replace("\0", " ")
