"""Versions of segments: texts that compare as the instants they name, so that what was written later wins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from engine.planning.errors import SnapshotRefused

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FORM = "%Y-%m-%dT%H:%M:%S.%fZ"
_MILLISECOND = timedelta(milliseconds=1)


def version_at(time_ms: int) -> str:
    """Return the version of an instant: ``2024-02-01T00:00:00.000Z``."""
    at = _EPOCH + timedelta(milliseconds=time_ms)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03d}Z"


def next_version(clock_ms: int, highest: str = "") -> str:
    """Return a version above ``highest`` ("" for none): that of the clock unless it went back.

    Raises SnapshotRefused if there is none above it.
    """
    version = version_at(clock_ms)
    if version > highest:
        return version
    try:
        last = datetime.strptime(highest, _FORM).replace(tzinfo=UTC)
        version = version_at((last + _MILLISECOND - _EPOCH) // _MILLISECOND)
    except (ValueError, OverflowError):
        version = ""
    if version <= highest:
        raise SnapshotRefused(f"the version {highest!r} is not one of ours: nothing can be put above it")
    return version
