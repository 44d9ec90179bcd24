"""Where files come into a timeline: entries never overlap, nothing hides a part of a file, refusals say why."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.tables.plan.arrivals import (
    Arrival,
    ArrivalRefused,
    ArrivingFile,
    append_files,
    replace_interval,
)
from engine.lanes.tables.plan.granularity import DAY_MS, HOUR_MS, Granularity
from engine.lanes.tables.plan.model import Segment
from engine.lanes.tables.plan.visibility import instant_version, version_above

CHUNK_AT = Granularity().chunk_of


def file(number: int, first_ms: int, last_ms: int | None = None) -> ArrivingFile:
    return ArrivingFile(number=number, first_ms=first_ms, last_ms=first_ms if last_ms is None else last_ms)


def segment(key: int, start_day: int, end_day: int, version: str = "v1", *, partition: int = 0) -> Segment:
    return Segment(
        key=key,
        start_ms=start_day * DAY_MS,
        end_ms=end_day * DAY_MS,
        version=version,
        partition=partition,
        size_bytes=1,
    )


def places(arrival: Arrival) -> list[tuple[int, int, int, str, int]]:
    return [
        (one.number, one.start_ms // DAY_MS, one.end_ms // DAY_MS, one.version, one.partition) for one in arrival.stamps
    ]


def test_files_of_an_empty_chunk_become_one_entry_of_it() -> None:
    arrival = append_files([file(0, HOUR_MS), file(1, 2 * HOUR_MS), file(2, DAY_MS)], [], CHUNK_AT, "v1")
    assert places(arrival) == [(0, 0, 1, "v1", 0), (1, 0, 1, "v1", 1), (2, 1, 2, "v1", 0)]
    assert not arrival.restamped


def test_a_late_file_takes_the_next_partition_of_the_version_that_is_there() -> None:
    there = [segment(7, 0, 1), segment(8, 0, 1, partition=4)]
    arrival = append_files([file(0, HOUR_MS)], there, CHUNK_AT, "v2")
    assert places(arrival) == [(0, 0, 1, "v1", 5)]
    assert not arrival.restamped


def test_a_file_over_several_entries_makes_one_of_them() -> None:
    there = [segment(7, 0, 1), segment(8, 2, 3), segment(9, 3, 4)]
    arrival = append_files([file(0, HOUR_MS, 2 * DAY_MS)], there, CHUNK_AT, "v2")
    assert places(arrival) == [(0, 0, 3, "v2", 2)]
    assert [(one.number, one.start_ms, one.end_ms, one.version) for one in arrival.restamped] == [
        (7, 0, 3 * DAY_MS, "v2"),
        (8, 0, 3 * DAY_MS, "v2"),
    ]


def test_what_was_dropped_stays_hidden_below_a_late_file() -> None:
    tombstone = Segment(key=5, start_ms=0, end_ms=DAY_MS, version="v3", is_tombstone=True)
    arrival = append_files([file(0, HOUR_MS)], [tombstone], CHUNK_AT, "v4")
    assert places(arrival) == [(0, 0, 1, "v4", 0)]
    spanning = append_files([file(0, HOUR_MS)], [tombstone, segment(6, 0, 1, "v2")], CHUNK_AT, "v4")
    assert [one.version for one in (*spanning.stamps, *spanning.restamped)] == ["v4", "v4"]


def test_an_interval_hides_what_lies_in_it_and_refuses_to_cut_a_file() -> None:
    there = [segment(1, 0, 1), segment(2, 1, 2)]
    assert replace_interval([file(0, HOUR_MS)], there, (0, DAY_MS), CHUNK_AT, "v2").hidden == (1,)
    assert replace_interval([], there, (0, 2 * DAY_MS), CHUNK_AT, "v2").hidden == (1, 2)
    with pytest.raises(ArrivalRefused, match="cuts a file"):
        replace_interval([file(0, HOUR_MS)], [segment(3, 0, 2)], (0, DAY_MS), CHUNK_AT, "v2")


@pytest.mark.parametrize(
    ("interval", "why"),
    [
        ((DAY_MS, 0), "ends before it starts"),
        ((0, 0), "ends before it starts"),
        ((HOUR_MS, DAY_MS), "starts within a chunk"),
        ((0, HOUR_MS), "ends within a chunk"),
    ],
)
def test_an_impossible_interval_is_refused_with_the_reason(interval: tuple[int, int], why: str) -> None:
    with pytest.raises(ArrivalRefused, match=why):
        replace_interval([], [], interval, CHUNK_AT, "v2")


def test_rows_outside_of_the_interval_are_refused_by_file() -> None:
    with pytest.raises(ArrivalRefused, match="file 3 has rows"):
        replace_interval([file(3, 0, DAY_MS)], [], (0, DAY_MS), CHUNK_AT, "v2")


hours = st.integers(0, 10 * 24 - 1)
arriving = st.lists(st.tuples(hours, st.integers(0, 60)), min_size=1, max_size=6)


@given(st.lists(arriving, min_size=1, max_size=8))
def test_entries_never_overlap_however_files_come(calls: list[list[tuple[int, int]]]) -> None:
    there: dict[int, Segment] = {}
    for number, call in enumerate(calls):
        files = [
            file(1000 * number + at, hour * HOUR_MS, (hour + more) * HOUR_MS) for at, (hour, more) in enumerate(call)
        ]
        arrival = append_files(files, there.values(), CHUNK_AT, f"v{number:03}")
        assert {one.number for one in arrival.stamps} == {one.number for one in files}
        for stamp in (*arrival.stamps, *arrival.restamped):
            there[stamp.number] = Segment(
                key=stamp.number,
                start_ms=stamp.start_ms,
                end_ms=stamp.end_ms,
                version=stamp.version,
                partition=stamp.partition,
            )
        identities = [(one.start_ms, one.end_ms, one.version, one.partition) for one in there.values()]
        assert len(set(identities)) == len(identities)
        entries = sorted({identity[:3] for identity in identities})
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(entries))
        for one in files:
            assert there[one.number].start_ms <= one.first_ms <= one.last_ms < there[one.number].end_ms


def test_a_version_is_above_every_other_even_if_the_clock_goes_back() -> None:
    assert version_above(0, []) == "1970-01-01T00:00:00.000Z"
    first = version_above(1_706_745_600_000, [])
    assert version_above(1_706_745_600_001, [first]) == "2024-02-01T00:00:00.001Z"
    highest = instant_version(1_706_745_600_999)
    assert version_above(5, [first, highest]) == "2024-02-01T00:00:01.000Z" > highest
    assert version_above(5, ["x of somebody else"]) > "x of somebody else"
