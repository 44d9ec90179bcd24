"""Text for sizes, times and durations, equal in the reasons of planners and on every page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATION_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_size(size_bytes: int) -> str:
    """Return a size with three significant digits: ``34.1 KiB``."""
    number, unit = float(size_bytes), 0
    while abs(number) >= 1000 and unit < len(_SIZE_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    digits = 0 if unit == 0 or number >= 100 else 1
    return f"{number:.{digits}f} {_SIZE_UNITS[unit]}"


def format_time(time_ms: int) -> str:
    """Return a time (Unix milliseconds) as date and time in UTC, or as a number if it is outside of the calendar."""
    try:
        when = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return f"{time_ms} ms"
    precision = "seconds" if time_ms % 60_000 else "minutes"
    return when.replace(tzinfo=None).isoformat(" ", timespec=precision) + " UTC"


def format_duration(duration_ms: int) -> str:
    """Return a duration in the largest unit that gives a whole number; days only from two days on."""
    for unit, unit_ms in _DURATION_UNITS:
        if duration_ms and duration_ms % unit_ms == 0 and (unit != "d" or duration_ms >= 2 * unit_ms):
            return f"{duration_ms // unit_ms} {unit}"
    return f"{duration_ms} ms"
