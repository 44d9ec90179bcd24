"""Permitted time ranges of queries, and the part that is read. Source: profile API format sheet, section 5.1."""

from __future__ import annotations

from dataclasses import dataclass

from engine.query.errors import InvalidQuestion
from engine.query.model import TIME_MAX_MS

MS_PER_S = 1_000
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Time range in unix milliseconds, both inclusive."""

    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Maximum length and maximum age of a range, in seconds; 0 for no limit."""

    length_s: int = 0
    lookback_s: int = 0


def checked_range(start_ms: int, end_ms: int, limits: RangeLimits, now_ms: int) -> TimeRange | None:
    """Return the part of a range that is read; None if the whole range is too old. Raises InvalidQuestion."""
    if not start_ms or not end_ms:
        raise InvalidQuestion("missing time range in the query")
    if start_ms > end_ms:
        raise InvalidQuestion("query start time is after end time")
    if limits.lookback_s:
        earliest = now_ms - limits.lookback_s * MS_PER_S
        if end_ms < earliest:
            return None
        start_ms = max(start_ms, earliest)
    if limits.length_s and end_ms - start_ms > limits.length_s * MS_PER_S:
        length, most = _exact((end_ms - start_ms) // MS_PER_S), _short(limits.length_s)
        raise InvalidQuestion(f"the query time range of {length} exceeds the limit of {most}")
    return TimeRange(_in_time(start_ms), _in_time(end_ms))


def _in_time(moment_ms: int) -> int:
    """Return the nearest timestamp that a row can have."""
    return min(max(moment_ms, -TIME_MAX_MS), TIME_MAX_MS)


def _exact(seconds: int) -> str:
    """Return a duration such as 73h0m0s."""
    hours, rest = divmod(seconds, 3_600)
    return f"{hours}h{rest // 60}m{rest % 60}s"


def _short(seconds: int) -> str:
    """Return a duration such as 2d or 1d12h."""
    parts = []
    for unit, letter in _UNITS:
        count, seconds = divmod(seconds, unit)
        if count:
            parts.append(f"{count}{letter}")
    return "".join(parts)
