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


def test_row_a1() -> None:
    found = shuffle(blocks(A1))
    assert told(found) == ["e1 0-2 x2", "e2 0-2 x2", "e1 2-4 x2"], "equal spans and starts: by the text of the key"
    assert found.compactions == 3
    told_keys = blocks(A1.replace("e1:", "0@9e1:").replace("e2:", "0@1e2:"))
    assert told(shuffle(told_keys))[0] == "0@1e2 0-2 x2", "the sheet's e2 comes first since its key's text does"


def test_row_a2() -> None:
    found = shuffle(blocks("e1:0-1 e2:0-1 e3:0-1"))
    assert (told(found), found.compactions) == ([], 0)


def test_row_a3() -> None:
    found = shuffle(blocks("e1:0-1 e1:1-2 e1:2-3 e1:3-4 e2:4-6 e2:6-8"))
    assert told(found) == ["e1 0-2 x2", "e1 2-4 x2", "e2 4-8 x2"]


def test_row_a4() -> None:
    assert told(shuffle(blocks("e1:0-1 e1:1-2 e1:2-3 e1:3-4 e1:1-2"))) == ["e1 0-2 x3", "e1 2-4 x2"]


def test_row_a5() -> None:
    [group] = shuffle(blocks("0-20 21-40 21-40"), ranges=(20, 40)).groups
    assert [one.ulid for one in group.blocks] == ["21-40", "21-40'"]


def test_row_a6() -> None:
    two = blocks("0-1.5 0-0.75")
    assert told(shuffle(two, ranges=(2,))) == [" 0-2 x2"]
    assert told(shuffle(two, ranges=(2,), now=3.5)) == [], "not before one whole range has passed"


def test_row_a7() -> None:
    assert told(shuffle(blocks("999-1000 999-1000"), ranges=(2,))) == []


AS_IN_THE_SHEET = A1.replace("e1:", "9e1:").replace("e2:", "1e2:")
"""The blocks of A1 under keys whose texts sort as those of the sheet: e2 first."""


def test_row_a8() -> None:
    marks = visited("1e2:0-1", "1e2:1-2")
    assert told(shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks)) == ["9e1 0-2 x2"]


def test_row_a9() -> None:
    found = shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=visited("1e2:1-2"))
    assert told(found) == ["9e1 0-2 x2"], "one marker blocks the group"


def test_row_a10() -> None:
    marks = visited("1e2:0-1", "1e2:1-2", ago=10 / 60)
    assert told(shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks)) == ["1e2 0-2 x2"], "expired"


def test_row_a11() -> None:
    marks = [*visited("1e2:0-1", visitor="me"), *visited("1e2:1-2", ago=1)]
    found = shuffle(blocks(AS_IN_THE_SHEET), at_once=1, visits=marks, own_visitor="me")
    assert told(found) == ["1e2 0-2 x2"]


def test_row_a12() -> None:
    found = shuffle(blocks(A1), at_once=2)
    assert (told(found), found.compactions) == (["e1 0-2 x2", "e2 0-2 x2"], 2)


def test_row_a13() -> None:
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
        "waiting: it came less than the consistency delay ago: it is looked at from 1970-02-11 16:01 UTC on"
    )
    assert found.explain("0-2") == "grouped: it is merged with the others of the 2 h from 1970-01-01 00:00 UTC"
    alone = plan_intervals("A", three[:1], policy, now_ms=LATER_MS)
    assert alone.explain("0-2") == "waiting: the rules reference make no group of it now"


B6 = "0-40 40-70 80-120"


@pytest.mark.parametrize(
    ("ranges", "text", "groups"),
    [
        pytest.param((20,), "", [], id="B1 none"),
        pytest.param((20,), "0-10", [], id="B1 one"),
        pytest.param((20,), "10-20 20-30 40-60", [], id="B2 20"),
        pytest.param((10, 20), "10-20 20-30 40-60", [], id="B2 10,20"),
        pytest.param(
            (20, 40),
            "10-20 20-30 25-30 30-40 40-50 50-60 60-70",
            ["20-40: 20-30 25-30 30-40", "40-60: 40-50 50-60"],
            id="B3",
        ),
        pytest.param(
            (10, 20), "10-20 20-30 30-40 40-60 60-70 70-80", ["20-40: 20-30 30-40", "60-80: 60-70 70-80"], id="B4"
        ),
        pytest.param(
            (10, 20),
            "0-10 7-10 10-20 20-30 30-40 40-60 60-70 70-80 75-80",
            ["0-10: 0-10 7-10", "70-80: 70-80 75-80", "20-40: 20-30 30-40"],
            id="B5",
        ),
        pytest.param((10, 20, 40), B6, [], id="B6"),
        pytest.param((10, 20, 40), B6 + " 80-120", ["80-120: 80-120 80-120'"], id="B7"),
        pytest.param((20, 40), "10-20 10-30 20-30 30-40", ["20-40: 20-30 30-40"], id="B8"),
        pytest.param((20, 40), "0-20 10-30 20-40", ["0-40: 0-20 10-30 20-40"], id="B9"),
        pytest.param((10, 20, 40), "0-40 30-150 40-70 80-120 80-120", ["80-120: 80-120 80-120'"], id="B10"),
        pytest.param((60,), "-60--50 -10--5 0-15 0-15", ["-60-0: -60--50 -10--5", "0-60: 0-15 0-15'"], id="B11"),
    ],
)
def test_rows_of_b(ranges: tuple[int, ...], text: str, groups: list[str]) -> None:
    found = range_groups(blocks(text, unit=1), ranges)
    assert [
        f"{start}-{start + size}: {' '.join(one.ulid for one in members)}" for size, start, members in found
    ] == groups
