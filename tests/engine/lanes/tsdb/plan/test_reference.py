"""Rows A and B of the reference sheet: the shuffle-sharding grouper, and grouping by range only. Times are hours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalPlan, VisitMark
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import HOUR_MS, MINUTE_MS, IntervalPolicy
from engine.lanes.tsdb.plan.reference import range_groups
from tests.engine.lanes.tsdb.plan.block_texts import LATER_MS, blocks, told


def shuffle(
    snapshot: Sequence[IntervalBlock],
    *,
    ranges: Sequence[int] = (2, 4),
    at_once: int = 3,
    now: float = 1000,
    **rest: object,
) -> IntervalPlan:
    policy = IntervalPolicy.of_reference(groups_max=at_once)
    policy = replace(policy, ranges_ms=tuple(one * HOUR_MS for one in ranges))
    return plan_intervals("A", snapshot, policy, now_ms=round(now * HOUR_MS), **rest)  # type: ignore[arg-type]


A1 = "e1:0-1 e1:1-2 e1:2-3 e1:3-4 e2:0-1 e2:1-2"


def visited(*names: str, visitor: str = "other", ago: float = 0) -> list[VisitMark]:
    at_ms = LATER_MS - round(ago * HOUR_MS)
    return [VisitMark(place=name, visitor=visitor, visited_at_ms=at_ms) for name in names]


@pytest.mark.row("tsdb-A1")
def test_groups_of_a_range_come_in_the_order_of_range_start_and_key() -> None:
    found = shuffle(blocks(A1))
    assert told(found) == ["e1 0-2 x2", "e2 0-2 x2", "e1 2-4 x2"], "equal spans and starts: by the text of the key"
    assert found.compactions == 3
    told_keys = blocks(A1.replace("e1:", "0@9e1:").replace("e2:", "0@1e2:"))
    assert told(shuffle(told_keys))[0] == "0@1e2 0-2 x2", "the sheet's e2 comes first since its key's text does"


@pytest.mark.row("tsdb-A2")
def test_a_single_block_per_key_makes_no_group() -> None:
    found = shuffle(blocks("e1:0-1 e2:0-1 e3:0-1"))
    assert (told(found), found.compactions) == ([], 0)


@pytest.mark.row("tsdb-A3")
def test_smaller_ranges_come_first() -> None:
    found = shuffle(blocks("e1:0-1 e1:1-2 e1:2-3 e1:3-4 e2:4-6 e2:6-8"))
    assert told(found) == ["e1 0-2 x2", "e1 2-4 x2", "e2 4-8 x2"]


@pytest.mark.row("tsdb-A4")
def test_an_overlapping_copy_joins_the_group_of_its_range() -> None:
    assert told(shuffle(blocks("e1:0-1 e1:1-2 e1:2-3 e1:3-4 e1:1-2"))) == ["e1 0-2 x3", "e1 2-4 x2"]


@pytest.mark.row("tsdb-A5")
def test_copies_of_one_block_are_grouped_without_the_block_before() -> None:
    [group] = shuffle(blocks("0-20 21-40 21-40"), ranges=(20, 40)).groups
    assert [one.ulid for one in group.blocks] == ["21-40", "21-40'"]


@pytest.mark.row("tsdb-A6")
def test_an_incomplete_range_is_grouped_once_a_whole_range_has_passed() -> None:
    two = blocks("0-1.5 0-0.75")
    assert told(shuffle(two, ranges=(2,))) == [" 0-2 x2"]
    assert told(shuffle(two, ranges=(2,), now=3.5)) == [], "not before one whole range has passed"


@pytest.mark.row("tsdb-A7")
def test_blocks_that_end_now_are_not_grouped() -> None:
    assert told(shuffle(blocks("999-1000 999-1000"), ranges=(2,))) == []


AS_IN_THE_SHEET = A1.replace("e1:", "9e1:").replace("e2:", "1e2:")
"""The blocks of A1 under keys whose texts sort as those of the sheet: e2 first."""


@pytest.mark.row("tsdb-A8")
def test_groups_visited_by_another_worker_are_skipped() -> None:
    marks = visited("1e2:0-1", "1e2:1-2")
    assert told(shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks)) == ["9e1 0-2 x2"]


@pytest.mark.row("tsdb-A9")
def test_a_mark_on_one_block_skips_the_whole_group() -> None:
    found = shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=visited("1e2:1-2"))
    assert told(found) == ["9e1 0-2 x2"], "one marker blocks the group"


@pytest.mark.row("tsdb-A10")
def test_expired_marks_are_ignored() -> None:
    marks = visited("1e2:0-1", "1e2:1-2", ago=10 / 60)
    assert told(shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks)) == ["1e2 0-2 x2"], "expired"


@pytest.mark.row("tsdb-A11")
def test_own_marks_are_ignored() -> None:
    marks = [*visited("1e2:0-1", visitor="me"), *visited("1e2:1-2", ago=1)]
    found = shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks, own_visitor="me")
    assert told(found) == ["1e2 0-2 x2"]


@pytest.mark.row("tsdb-A12")
def test_the_number_of_groups_is_limited_by_concurrency() -> None:
    found = shuffle(blocks(A1), at_once=2)
    assert (told(found), found.compactions) == (["e1 0-2 x2", "e2 0-2 x2"], 2)


@pytest.mark.row("tsdb-A13")
def test_blocks_marked_no_compact_are_left_out_of_their_group() -> None:
    snapshot = blocks("e1:0-1 e1:1-2 e1:2-3 e2:0-1 e2:1-2")
    snapshot[2] = replace(snapshot[2], no_compact="manual")
    found = shuffle(snapshot, ranges=(4,))
    assert told(found) == ["e1 0-4 x2", "e2 0-4 x2"]
    assert {one.ulid for group in found.groups for one in group.blocks} == {"e1:0-1", "e1:1-2", "e2:0-1", "e2:1-2"}


def test_groups_of_the_reference_are_complete_by_what_follows_what_they_span_or_the_time_that_has_passed() -> None:
    parts = blocks("0-1 0-1.5")
    assert told(shuffle(parts, ranges=(2,), now=3)) == []
    assert told(shuffle([*parts, *blocks("2-2.5")], ranges=(2,), now=3)) == [" 0-2 x2"]
    assert told(shuffle(blocks("0-1 1-2"), ranges=(2,), now=2)) == [" 0-2 x2"]


def test_the_consistency_delay_of_the_reference_hides_young_blocks_of_level_one() -> None:
    policy = replace(IntervalPolicy.of_reference(), consistency_delay_ms=30 * MINUTE_MS)
    three = [*blocks("0-2 0-2 0-2")]
    three[2] = replace(three[2], uploaded_at_ms=LATER_MS - 29 * MINUTE_MS)
    found = plan_intervals("A", three, policy, now_ms=LATER_MS)
    assert told(found) == [" 0-2 x2"]
    assert found.explain("0-2''") == (
        "waiting: it was uploaded within the consistency delay; it is considered from 1970-02-11 16:01 UTC on"
    )
    assert found.explain("0-2") == "grouped: it is merged with the other blocks of the 2 h from 1970-01-01 00:00 UTC"
    alone = plan_intervals("A", three[:1], policy, now_ms=LATER_MS)
    assert alone.explain("0-2") == "waiting: the rules reference do not group it now"


B6 = "0-40 40-70 80-120"


@pytest.mark.parametrize(
    ("ranges", "text", "groups"),
    [
        pytest.param((20,), "", [], id="B1 none", marks=pytest.mark.row("tsdb-B1")),
        pytest.param((20,), "0-10", [], id="B1 one", marks=pytest.mark.row("tsdb-B1")),
        pytest.param((20,), "10-20 20-30 40-60", [], id="B2 20", marks=pytest.mark.row("tsdb-B2")),
        pytest.param((10, 20), "10-20 20-30 40-60", [], id="B2 10,20", marks=pytest.mark.row("tsdb-B2")),
        pytest.param(
            (20, 40),
            "10-20 20-30 25-30 30-40 40-50 50-60 60-70",
            ["20-40: 20-30 25-30 30-40", "40-60: 40-50 50-60"],
            id="B3",
            marks=pytest.mark.row("tsdb-B3"),
        ),
        pytest.param(
            (10, 20),
            "10-20 20-30 30-40 40-60 60-70 70-80",
            ["20-40: 20-30 30-40", "60-80: 60-70 70-80"],
            id="B4",
            marks=pytest.mark.row("tsdb-B4"),
        ),
        pytest.param(
            (10, 20),
            "0-10 7-10 10-20 20-30 30-40 40-60 60-70 70-80 75-80",
            ["0-10: 0-10 7-10", "70-80: 70-80 75-80", "20-40: 20-30 30-40"],
            id="B5",
            marks=pytest.mark.row("tsdb-B5"),
        ),
        pytest.param((10, 20, 40), B6, [], id="B6", marks=pytest.mark.row("tsdb-B6")),
        pytest.param(
            (10, 20, 40), B6 + " 80-120", ["80-120: 80-120 80-120'"], id="B7", marks=pytest.mark.row("tsdb-B7")
        ),
        pytest.param(
            (20, 40), "10-20 10-30 20-30 30-40", ["20-40: 20-30 30-40"], id="B8", marks=pytest.mark.row("tsdb-B8")
        ),
        pytest.param(
            (20, 40), "0-20 10-30 20-40", ["0-40: 0-20 10-30 20-40"], id="B9", marks=pytest.mark.row("tsdb-B9")
        ),
        pytest.param(
            (10, 20, 40),
            "0-40 30-150 40-70 80-120 80-120",
            ["80-120: 80-120 80-120'"],
            id="B10",
            marks=pytest.mark.row("tsdb-B10"),
        ),
        pytest.param(
            (60,),
            "-60--50 -10--5 0-15 0-15",
            ["-60-0: -60--50 -10--5", "0-60: 0-15 0-15'"],
            id="B11",
            marks=pytest.mark.row("tsdb-B11"),
        ),
    ],
)
def test_blocks_are_grouped_by_range(ranges: tuple[int, ...], text: str, groups: list[str]) -> None:
    found = range_groups(blocks(text, unit=1), ranges)
    assert [
        f"{start}-{start + size}: {' '.join(one.ulid for one in members)}" for size, start, members in found
    ] == groups
