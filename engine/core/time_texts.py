"""Times and lengths of time as people read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def moment(time_ms: int) -> str:
    """Return a time as people read it, in UTC; as a number where no calendar reaches."""
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    digits = "seconds" if time_ms % 60_000 else "minutes"
    return when.replace(tzinfo=None).isoformat(" ", timespec=digits) + " UTC"


def length(time_ms: int) -> str:
    """Return a length of time in the largest unit that leaves a whole number; days only from two on."""
    for unit, size_ms in _UNITS:
        if time_ms and time_ms % size_ms == 0 and (unit != "d" or time_ms >= 2 * size_ms):
            return f"{time_ms // size_ms} {unit}"
    return f"{time_ms} ms"
