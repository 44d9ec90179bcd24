"""Time chunks of a granularity, with borders on the calendar of a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np

from engine.lanes.tables.plan.zones import Offsets, offsets
from engine.schedule.errors import PolicyRefused

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
WEEK_MS = 7 * DAY_MS
MONTH_MS = 30 * DAY_MS
YEAR_MS = 365 * DAY_MS

ALL = "all"
NAMED = {"hour": "PT1H", "day": "P1D", "week": "P1W", "month": "P1M", "quarter": "P3M", "year": "P1Y"}
"""Named periods. ``all`` is not a period: its chunks are the parts of a timeline without gaps."""

_MONDAY_MS = -3 * DAY_MS
_MONTHS_MAX = 1_200
_PERIOD = re.compile(
    r"P(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)S)?)?"
)

Instants = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class _Step:
    """The distance of consecutive boundaries on the local calendar, in months or milliseconds."""

    months: int
    length_ms: int
    origin_month: int
    origin_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Granularity:
    """Chunks of one period on the local calendar of a time zone. Raises PolicyRefused for invalid values.

    ``period`` is a name or an ISO 8601 period, either of years and months or of shorter units. ``origin_ms`` is an
    instant at which a chunk starts; by default chunks start with the local day, Monday, month or year. Chunks of
    ``all`` start and end at gaps of the timeline.
    """

    period: str = "day"
    timezone: str = "UTC"
    origin_ms: int | None = None

    def __post_init__(self) -> None:
        zone(self.timezone)
        if not self.is_all:
            _step(self)

    @property
    def is_all(self) -> bool:
        return self.period == ALL

    @property
    def nominal_ms(self) -> int:
        """The usual length of a chunk; a month counts as 30 days, ``all`` as one day."""
        if self.is_all:
            return DAY_MS
        step = _step(self)
        return step.months // 12 * YEAR_MS + step.months % 12 * MONTH_MS if step.months else step.length_ms

    def fingerprint(self) -> str:
        """Return a text that is equal for granularities with equal chunks."""
        return (
            f"{NAMED.get(self.period, self.period)}@{self.timezone}@{'' if self.origin_ms is None else self.origin_ms}"
        )

    def ordinals(self, times: Instants) -> Instants:
        """Return the number of the chunk of each instant; numbers increase with time. Not for ``all``."""
        step = _step(self)
        if not len(times):
            return times
        local = self._offsets(int(times.min()), int(times.max())).local(times)
        if step.months:
            months = (local - step.origin_ms).astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)
            return (months - step.origin_month) // step.months
        return (local - step.origin_ms) // step.length_ms

    def starts(self, ordinals: Instants) -> Instants:
        """Return the start of each of these chunks; the start of the next number is a chunk's end."""
        step = _step(self)
        if not len(ordinals):
            return ordinals
        if step.months:
            months = ordinals * step.months + step.origin_month
            local = months.astype("datetime64[M]").astype("datetime64[ms]").astype(np.int64) + step.origin_ms
        else:
            local = ordinals * step.length_ms + step.origin_ms
        return self._offsets(int(local.min()), int(local.max())).instants(local)

    def chunk_of(self, time_ms: int) -> tuple[int, int]:
        """Return start and end of the chunk of an instant. Not for ``all``."""
        number = self.ordinals(np.array([time_ms]))
        start_ms, end_ms = self.starts(np.array([number[0], number[0] + 1])).tolist()
        return start_ms, end_ms

    def hull(self, start_ms: int, end_ms: int) -> tuple[int, int]:
        """Return the smallest interval of whole chunks that contains an interval. Not for ``all``."""
        return self.chunk_of(start_ms)[0], self.chunk_of(end_ms - 1)[1]

    def is_whole(self, start_ms: int, end_ms: int) -> bool:
        """Return whether an interval consists of whole chunks; always True for ``all``."""
        return self.is_all or (start_ms < end_ms and self.hull(start_ms, end_ms) == (start_ms, end_ms))

    def _offsets(self, first_ms: int, last_ms: int) -> Offsets:
        return offsets(self.timezone, first_ms, last_ms)


@lru_cache(maxsize=1_000)
def zone(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name. Raises PolicyRefused if it is unknown."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise PolicyRefused(f"unknown time zone {name!r}") from error


@lru_cache(maxsize=1_000)
def _step(granularity: Granularity) -> _Step:
    text = NAMED.get(granularity.period, granularity.period)
    found = _PERIOD.fullmatch(text)
    numbers = {unit: int(number) for unit, number in found.groupdict().items() if number} if found else {}
    if not any(numbers.values()):
        raise PolicyRefused(
            f"unknown granularity {granularity.period!r}: use {', '.join(NAMED)}, {ALL}, or a period like P3D or PT6H"
        )
    months = 12 * numbers.pop("years", 0) + numbers.pop("months", 0)
    lengths = {"weeks": WEEK_MS, "days": DAY_MS, "hours": HOUR_MS, "minutes": MINUTE_MS, "seconds": SECOND_MS}
    length_ms = sum(number * lengths[unit] for unit, number in numbers.items())
    if months and length_ms:
        raise PolicyRefused(f"a granularity of {granularity.period!r} combines months with shorter units")
    if months > _MONTHS_MAX or length_ms > _MONTHS_MAX * MONTH_MS:
        raise PolicyRefused(f"a granularity of {granularity.period!r} is longer than a century")
    if granularity.origin_ms is None:
        return _Step(months, length_ms, 0, _MONDAY_MS if length_ms and length_ms % WEEK_MS == 0 else 0)
    local = offsets(granularity.timezone, granularity.origin_ms, granularity.origin_ms).local(
        np.array([granularity.origin_ms])
    )
    if not months:
        return _Step(0, length_ms, 0, int(local[0]))
    first = local.astype("datetime64[ms]").astype("datetime64[M]")
    into_month = int(local[0]) - int(first.astype("datetime64[ms]").astype(np.int64)[0])
    if into_month >= 28 * DAY_MS:
        raise PolicyRefused("the origin of a granularity of months must be on one of the first 28 days of a month")
    return _Step(months, 0, int(first.astype(np.int64)[0]), into_month)
