"""Local time of a time zone, for many instants at once.

Where clocks are set back, local time would repeat. Here it stands still instead, so that it never decreases and every
boundary has one instant: the first at which local time reached it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np

Instants = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_YEAR, _LAST_YEAR = 1800, 2200
"""Before and after these years the offset is that of their first and last instant."""
_PROBE = timedelta(days=7)
_MILLISECOND = timedelta(milliseconds=1)
_YEAR_MS = 31_556_952_000
_FAR_MS = (1 << 63) - 1


@dataclass(frozen=True, slots=True, eq=False)
class Offsets:
    """From ``since`` on, local time is ``offset`` ahead of UTC; the next offset starts when it reaches ``until``."""

    since: Instants
    offset: Instants
    until: Instants

    def local(self, times: Instants) -> Instants:
        """Return local times in milliseconds since the local 1970-01-01."""
        if len(self.since) == 1:
            return np.asarray(times + self.offset[0])
        which = np.searchsorted(self.since[1:], times, side="right")
        found = times + self.offset[which]
        reached = np.concatenate([found[:0], [-_FAR_MS], self.until[:-1]])
        return np.asarray(np.maximum(found, reached[which]))

    def instants(self, local: Instants) -> Instants:
        """Return the first instants at which local time reached these."""
        if len(self.since) == 1:
            return np.asarray(local - self.offset[0])
        which = np.searchsorted(self.until, local, side="left")
        return np.asarray(np.maximum(local - self.offset[which], self.since[which]))


def offsets(name: str, first_ms: int, last_ms: int) -> Offsets:
    """Return the offsets of a time zone between two instants or local times, plus a year on each side."""
    if name == "UTC":
        return _UTC
    first = _year(first_ms) - 1
    return _between(name, first, max(first, _year(last_ms) + 1))


def _year(time_ms: int) -> int:
    return min(max(1970 + time_ms // _YEAR_MS, _FIRST_YEAR + 1), _LAST_YEAR - 1)


_UTC = Offsets(np.array([-_FAR_MS]), np.array([0]), np.array([_FAR_MS]))


@lru_cache(maxsize=1_000)
def _between(name: str, first_year: int, last_year: int) -> Offsets:
    changes = _changes(name)
    times = [time_ms for time_ms, _ in changes]
    begin = max(0, bisect_right(times, (first_year - 1970) * _YEAR_MS) - 1)
    end = bisect_right(times, (last_year + 1 - 1970) * _YEAR_MS)
    since = np.array([-_FAR_MS, *times[begin + 1 : end]])
    offset = np.array([change for _, change in changes[begin:end]])
    until = np.concatenate([since[1:] - 1 + offset[:-1], [_FAR_MS]])
    return Offsets(since, offset, np.maximum.accumulate(until))


@lru_cache(maxsize=100)
def _changes(name: str) -> list[tuple[int, int]]:
    """Return all offset changes of a zone: the instant, and the offset from then on; the first has no beginning."""
    where = ZoneInfo(name)
    moment = datetime(_FIRST_YEAR, 1, 1, tzinfo=UTC)
    found = [(-_FAR_MS, _offset_ms(where, moment))]
    while moment.year < _LAST_YEAR:
        later = moment + _PROBE
        if _offset_ms(where, later) != found[-1][1]:
            low, high = moment, later
            while high - low > _MILLISECOND:
                middle = low + (high - low) // 2
                middle -= timedelta(microseconds=middle.microsecond % 1000)
                low, high = (middle, high) if _offset_ms(where, middle) == found[-1][1] else (low, middle)
            found.append(((high - _EPOCH) // _MILLISECOND, _offset_ms(where, later)))
        moment = later
    return found


def _offset_ms(where: ZoneInfo, moment: datetime) -> int:
    ahead = moment.astimezone(where).utcoffset()
    assert ahead is not None
    return ahead // _MILLISECOND
