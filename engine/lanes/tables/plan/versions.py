"""Versions of entries: texts, of which the greater hides the lesser. Ours are instants, so that they grow with time."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def instant_version(time_ms: int) -> str:
    """Return the version of an instant, like ``2024-02-01T00:00:00.000Z``."""
    when = _EPOCH + timedelta(milliseconds=time_ms)
    return when.replace(tzinfo=None).isoformat(timespec="milliseconds").zfill(23) + "Z"


def version_above(now_ms: int, versions: Iterable[str]) -> str:
    """Return a version above all of these: now, or just after the highest if the clock is behind it."""
    highest = max(versions, default="")
    now = instant_version(now_ms)
    if now > highest:
        return now
    if _FORM.fullmatch(highest):
        try:
            after = datetime.fromisoformat(highest) + _MILLISECOND
        except (ValueError, OverflowError):
            return highest + "+"
        return instant_version((after - _EPOCH) // _MILLISECOND)
    return highest + "+"
