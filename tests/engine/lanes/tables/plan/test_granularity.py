"""Chunks follow the calendar: of any time zone, over its changes, in weeks, months and periods of one's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS, Granularity
from engine.schedule.errors import PolicyRefused

ZONES = (
    "UTC",
    "America/New_York",
    "America/St_Johns",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
    "Europe/Berlin",
    "Atlantic/Azores",
    "America/Sao_Paulo",
)
LOW_MS, HIGH_MS = -2_208_988_800_000, 7_000_000_000_000


def ms(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def chunk(period: str, time_ms: int, timezone: str = "UTC", origin_ms: int | None = None) -> tuple[int, int]:
    return Granularity(period=period, timezone=timezone, origin_ms=origin_ms).chunk_of(time_ms)


@pytest.mark.row("X22")
@pytest.mark.parametrize(
    ("day", "hours"),
    [((2024, 3, 10), 23), ((2024, 11, 3), 25), ((2024, 7, 4), 24)],
)
def test_days_of_new_york_have_23_to_25_hours(day: tuple[int, int, int], hours: int) -> None:
    start_ms, end_ms = chunk("day", ms(*day, 12), "America/New_York")
    assert datetime.fromtimestamp(start_ms / 1000, ZoneInfo("America/New_York")).timetuple()[:5] == (*day, 0, 0)
    assert end_ms - start_ms == hours * HOUR_MS


@pytest.mark.parametrize(
    ("period", "inside", "start", "end"),
    [
        ("hour", (2024, 2, 29, 23, 59), (2024, 2, 29, 23), (2024, 3, 1)),
        ("day", (2024, 2, 29, 5), (2024, 2, 29), (2024, 3, 1)),
        ("week", (2024, 12, 31), (2024, 12, 30), (2025, 1, 6)),
        ("week", (1969, 12, 28), (1969, 12, 22), (1969, 12, 29)),
        ("month", (2024, 2, 29), (2024, 2, 1), (2024, 3, 1)),
        ("quarter", (2023, 12, 31), (2023, 10, 1), (2024, 1, 1)),
        ("year", (1960, 5, 5), (1960, 1, 1), (1961, 1, 1)),
        ("P5Y", (1974, 12, 31), (1970, 1, 1), (1975, 1, 1)),
        ("PT6H", (2024, 2, 1, 17), (2024, 2, 1, 12), (2024, 2, 1, 18)),
        ("PT15M", (2024, 2, 1, 17, 31), (2024, 2, 1, 17, 30), (2024, 2, 1, 17, 45)),
        ("P2W", (1970, 1, 12), (1970, 1, 12), (1970, 1, 26)),
    ],
)
def test_chunks_of_utc(period: str, inside: tuple[int, ...], start: tuple[int, ...], end: tuple[int, ...]) -> None:
    assert chunk(period, ms(*inside)) == (ms(*start), ms(*end))


def test_chunks_begin_at_the_origin() -> None:
    assert chunk("P3D", ms(2024, 2, 6), origin_ms=ms(2024, 2, 2)) == (ms(2024, 2, 5), ms(2024, 2, 8))
    assert chunk("month", ms(2024, 3, 3), origin_ms=ms(2023, 1, 10, 6)) == (ms(2024, 2, 10, 6), ms(2024, 3, 10, 6))
    assert chunk("month", ms(2024, 2, 10), origin_ms=ms(2023, 1, 10, 6)) == (ms(2024, 1, 10, 6), ms(2024, 2, 10, 6))


def test_local_time_that_comes_twice_or_never_gives_no_empty_chunk() -> None:
    # St. John's went back from 00:01 to 23:01: the new day had begun for a minute.
    new_day = ms(2010, 11, 7, 2, 30)
    assert chunk("day", new_day, "America/St_Johns") == (new_day, new_day + 25 * HOUR_MS)
    assert chunk("day", new_day + 30 * 60_000, "America/St_Johns")[0] == new_day
    # Apia left out the 30th of December 2011.
    before, after = (
        chunk("day", ms(2011, 12, 30, 9), "Pacific/Apia"),
        chunk("day", ms(2011, 12, 30, 11), "Pacific/Apia"),
    )
    assert before == (ms(2011, 12, 29, 10), ms(2011, 12, 30, 10))
    assert after == (ms(2011, 12, 30, 10), ms(2011, 12, 31, 10))


@pytest.mark.slow
@pytest.mark.row("E15")
@settings(max_examples=300, deadline=None)
@given(
    st.integers(LOW_MS, HIGH_MS),
    st.sampled_from(["hour", "day", "week", "month", "quarter", "year", "PT6H", "P3D", "P2M"]),
    st.sampled_from(ZONES),
)
def test_every_instant_is_in_one_chunk_and_chunks_are_adjacent(time_ms: int, period: str, timezone: str) -> None:
    granularity = Granularity(period=period, timezone=timezone)
    start_ms, end_ms = granularity.chunk_of(time_ms)
    assert start_ms <= time_ms < end_ms
    assert granularity.chunk_of(start_ms) == granularity.chunk_of(end_ms - 1) == (start_ms, end_ms)
    assert granularity.chunk_of(start_ms - 1)[1] == start_ms
    assert granularity.chunk_of(end_ms)[0] == end_ms
    assert granularity.is_whole(start_ms, end_ms)
    assert not granularity.is_whole(start_ms, end_ms - 1)
    near = np.array([start_ms - 1, start_ms, time_ms, end_ms - 1, end_ms])
    assert (np.diff(granularity.ordinals(near)) >= 0).all()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 4_000_000_000_000), st.sampled_from(ZONES))
def test_days_begin_by_the_calendar_of_the_time_zone(time_ms: int, timezone: str) -> None:
    start_ms, end_ms = Granularity(timezone=timezone).chunk_of(time_ms)
    zone = ZoneInfo(timezone)
    first = datetime.fromtimestamp(start_ms // 1000, zone)
    last = datetime.fromtimestamp(end_ms // 1000 - 1, zone)
    assert first.date() == last.date() or end_ms - start_ms > 24 * HOUR_MS
    before = datetime.fromtimestamp(start_ms // 1000 - 1, zone)
    assert before.date() < first.date()
    if first.time() != datetime.min.time():  # the day's first hour was left out
        assert first.utcoffset() != before.utcoffset()


def test_far_away_instants_have_chunks_too() -> None:
    for time_ms in (-(1 << 60), 1 << 60):
        start_ms, end_ms = Granularity(timezone="Europe/Berlin").chunk_of(time_ms)
        assert start_ms <= time_ms < end_ms == start_ms + DAY_MS


@pytest.mark.parametrize(
    "told",
    [
        {"period": "fortnight"},
        {"period": "P"},
        {"period": "P0D"},
        {"period": "P1M1D"},
        {"period": "P200Y"},
        {"timezone": "Mars/Olympus"},
        {"timezone": "../etc/passwd"},
        {"period": "month", "origin_ms": ms(2024, 1, 29)},
    ],
)
def test_what_is_no_granularity_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(PolicyRefused):
        Granularity(**told)  # type: ignore[arg-type]


def test_chunks_of_a_long_time_are_found_at_once() -> None:
    granularity = Granularity(timezone="America/New_York")
    first = datetime(2000, 1, 1, 12, tzinfo=UTC)
    times = np.array([ms(*(first + timedelta(days=days)).timetuple()[:5]) for days in range(9_000)])
    ordinals = granularity.ordinals(times)
    assert (np.diff(ordinals) == 1).all()
    starts = granularity.starts(ordinals)
    assert set((np.diff(starts) // HOUR_MS).tolist()) == {23, 24, 25}
