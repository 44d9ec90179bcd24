"""Rows F of the reference sheet: the planner of a single worker. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.lanes.tsdb.plan.model import IntervalBlock, TakenGroup
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import REFERENCE_LOCAL, IntervalPolicy
from engine.lanes.tsdb.plan.reference_local import plan_local
from tests.engine.lanes.tsdb.plan.block_texts import LATER_MS, block, blocks

RANGES = (20, 60, 180, 540, 1620)


def local(text: str, *, excluded: str = "") -> str:
    """Return what is planned for blocks like ``0-20``, by their names."""
    return chosen(blocks(text, unit=1), excluded=excluded)


def chosen(made: Sequence[IntervalBlock], *, excluded: str = "") -> str:
    policy = replace(IntervalPolicy.of_reference(REFERENCE_LOCAL), ranges_ms=RANGES)
    group = plan_local("A", made, policy, is_excluded=lambda one: one.ulid == excluded)
    return " ".join(one.ulid for one in group.blocks) if group else ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("0-20", "", id="F1 one", marks=pytest.mark.row("tsdb-F1")),
        pytest.param("0-20 20-40", "", id="F1 two", marks=pytest.mark.row("tsdb-F1")),
        pytest.param("0-20 20-40 40-60", "", id="F1 three", marks=pytest.mark.row("tsdb-F1")),
        pytest.param("0-20 20-40 40-60 60-80", "0-20 20-40 40-60", id="F2", marks=pytest.mark.row("tsdb-F2")),
        pytest.param("0-20 20-40 60-80", "", id="F3", marks=pytest.mark.row("tsdb-F3")),
        pytest.param("0-20 20-40 60-80 80-100", "0-20 20-40", id="F4", marks=pytest.mark.row("tsdb-F4")),
        pytest.param("0-20 20-40 40-60 60-120 120-180", "0-20 20-40 40-60", id="F5", marks=pytest.mark.row("tsdb-F5")),
        pytest.param(
            "20-40 60-120 120-180 720-960 960-980", "20-40 60-120 120-180", id="F6", marks=pytest.mark.row("tsdb-F6")
        ),
        pytest.param("540-560 420-540 360-420 0-360", "360-420 420-540", id="F10", marks=pytest.mark.row("tsdb-F10")),
        pytest.param("0-20 19-40 40-60", "0-20 19-40", id="F11", marks=pytest.mark.row("tsdb-F11")),
        pytest.param("0-20 20-40 30-50", "20-40 30-50", id="F12", marks=pytest.mark.row("tsdb-F12")),
        pytest.param("0-20 10-40 30-50", "0-20 10-40 30-50", id="F13", marks=pytest.mark.row("tsdb-F13")),
        pytest.param(
            "0-360 340-560 360-420 420-540",
            "0-360 340-560 360-420 420-540",
            id="F14",
            marks=pytest.mark.row("tsdb-F14"),
        ),
        pytest.param("0-10 9-20 30-40 39-50", "0-10 9-20", id="F15", marks=pytest.mark.row("tsdb-F15")),
    ],
)
def test_the_single_worker_selects_blocks(text: str, expected: str) -> None:
    assert local(text) == expected


def scarred(name: str, start: int, end: int, tombstones: int, series: int) -> IntervalBlock:
    return block(name, start, end, unit=1, tombstones=tombstones, series=series)


@pytest.mark.row("tsdb-F7")
def test_a_large_block_with_many_tombstones_is_rewritten_if_it_is_not_the_newest() -> None:
    old, new = scarred("old", 0, 540, 3, 10), scarred("new", 540, 560, 0, 10)
    assert chosen([old, new]) == "old"
    assert chosen([old]) == ""
    group = plan_local("A", [old, new], replace(IntervalPolicy.of_reference(REFERENCE_LOCAL), ranges_ms=RANGES))
    assert group is not None
    assert group.reason.startswith("a block in the 540 ms from 1970-01-01 00:00 UTC has many tombstones")


@pytest.mark.row("tsdb-F8")
def test_a_small_block_with_tombstones_is_rewritten_only_if_all_its_series_are_deleted() -> None:
    assert chosen([scarred("old", 0, 60, 3, 10), scarred("new", 60, 80, 0, 10)]) == ""
    assert chosen([scarred("old", 0, 60, 10, 10), scarred("new", 60, 80, 0, 10)]) == "old", "nothing of it is left"


@pytest.mark.row("tsdb-F9")
def test_a_block_without_series_is_not_rewritten_endlessly() -> None:
    assert chosen([scarred("old", 0, 540, 0, 0), scarred("new", 540, 560, 0, 0)]) == ""


@pytest.mark.row("tsdb-F16")
def test_a_failed_block_stops_its_whole_range() -> None:
    made = blocks("0-20 20-40 40-60 60-80", unit=1)
    made[1] = replace(made[1], is_failed=True)
    assert chosen(made) == ""


@pytest.mark.row("tsdb-F17")
def test_blocks_of_stale_series_are_grouped_apart() -> None:
    made = blocks("0-20 20-40 40-60 60-80", unit=1)
    stale = block("stale", 0, 60, unit=1, hints=("from-stale-series",))
    assert chosen([*made, stale]) == "0-20 20-40 40-60"
    assert chosen([stale, block("stale2", 0, 60, unit=1, hints=("from-stale-series",))]) == "stale stale2"


@pytest.mark.row("tsdb-F18")
def test_an_excluded_block_stops_planning() -> None:
    assert local("0-20 20-40 40-60 60-80", excluded="20-40") == ""


def test_the_single_worker_is_chosen_by_name_and_leaves_alone_what_a_job_has() -> None:
    policy = replace(IntervalPolicy.of_reference(REFERENCE_LOCAL), ranges_ms=RANGES)
    made = blocks("0-20 20-40 40-60 60-80 a:0-20 a:10-20 a:20-40", unit=1)
    found = plan_intervals("A", made, replace(policy, groups_max=0), now_ms=LATER_MS)
    assert [" ".join(one.ulid for one in group.blocks) for group in found.groups] == [
        "0-20 20-40 40-60",
        "a:0-20 a:10-20",
    ]
    assert len(plan_intervals("A", made, policy, now_ms=LATER_MS).groups) == 1
    job = TakenGroup(range_ms=60, start_ms=0, ulids=("0-20",), why="runs in job 3")
    busy = plan_intervals("A", made, policy, now_ms=LATER_MS, taken=[job])
    assert [group.group_key for group in busy.groups] == ["a"]
    assert busy.explain("0-20") == "taken: the 60 ms from 1970-01-01 00:00 UTC: runs in job 3"
