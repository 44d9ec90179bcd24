"""Rows D of the reference sheet: the partitioning grouper. Times are hours, ``2-4:1/2`` is part 1 of 2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from engine.lanes.tsdb.plan.model import IntervalBlock, group_id
from engine.lanes.tsdb.plan.plan import plan_intervals
from engine.lanes.tsdb.plan.policy import HOUR_MS, MINUTE_MS, REFERENCE_PARTITIONS, IntervalPolicy
from engine.lanes.tsdb.plan.reference_partitions import StartedGroup, partition_groups, partition_jobs
from tests.engine.lanes.tsdb.plan.block_texts import LATER_MS, block, told


def cut(text: str, *, level: int = 2, series: int = 1, **rest: object) -> list[IntervalBlock]:
    """Return blocks of a list like ``0-2:0/2``, part and count behind the colon; names have the level."""
    made: list[IntervalBlock] = []
    for word in text.split():
        span, _, part = word.partition(":")
        start, end = (float(one) for one in span.split("-"))
        partition, partitions = (int(one) for one in (part or "0/1").split("/"))
        name = f"L{level} {word}"
        name += "'" * sum(one.ulid.rstrip("'") == name for one in made)
        made.append(
            block(name, start, end, level=level, series=series, partition=partition, partitions=partitions, **rest)
        )
    return made


PARTITIONING = IntervalPolicy.of_reference(REFERENCE_PARTITIONS, groups_max=0)


def grouped(
    snapshot: Sequence[IntervalBlock],
    *,
    limit: int = 0,
    replication: int = 3,
    started: Sequence[StartedGroup] = (),
    now: float = 1000,
    cleanup_min: int = 15,
) -> list[str]:
    """Return the jobs as ``start-end partition/count: blocks``."""
    policy = replace(
        PARTITIONING, partition_series=limit, replication=replication, cleanup_interval_ms=cleanup_min * MINUTE_MS
    )
    groups = partition_groups("A", snapshot, policy, now_ms=round(now * HOUR_MS), started=started)
    return [
        f"{job.start_ms // HOUR_MS}-{(job.start_ms + job.range_ms) // HOUR_MS} {job.partition}/{job.partitions}: "
        + ", ".join(job.ulids)
        for job in partition_jobs(groups, started)
    ]


def counts(jobs: Sequence[str]) -> list[str]:
    """Return the jobs with the number of their blocks only."""
    return [f"{job.split(':')[0]} x{job.count(',') + 1}" for job in jobs]


D1 = cut("0-2 0-2 2-4 2-4", level=1)
D4 = cut("0-2 0-2 2-4 10-12 12-14")
HALVES = "0-2:0/2 0-2:1/2"


@pytest.mark.row("tsdb-D1")
def test_blocks_of_level_one_are_grouped_by_two_hours_in_one_part() -> None:
    assert counts(grouped(D1)) == ["0-2 0/1 x2", "2-4 0/1 x2"]


@pytest.mark.row("tsdb-D2")
def test_the_series_limit_is_scaled_by_the_replication_factor() -> None:
    six = cut("0-2 0-2 0-2 0-2 0-2 0-2", level=1)
    assert counts(grouped(six, limit=4)) == ["0-2 0/1 x6"]
    assert counts(grouped(six, limit=4, replication=1)) == ["0-2 0/2 x6", "0-2 1/2 x6"]


@pytest.mark.row("tsdb-D3")
@pytest.mark.parametrize("started", [(0,), (2,), (0, 2)], ids=str)
def test_jobs_of_begun_groups_equal_new_ones(started: tuple[int, ...]) -> None:
    files = [
        StartedGroup(
            range_ms=2 * HOUR_MS,
            start_ms=start * HOUR_MS,
            partitions=1,
            sources={0: (f"L1 {start}-{start + 2}", f"L1 {start}-{start + 2}'")},
        )
        for start in started
    ]
    assert grouped(D1, started=files) == grouped(D1)


@pytest.mark.row("tsdb-D4")
def test_blocks_of_two_hours_are_grouped_by_twelve_hours() -> None:
    assert counts(grouped(D4)) == ["0-12 0/1 x4"]


@pytest.mark.row("tsdb-D5")
def test_two_blocks_of_one_slot_are_grouped_by_twelve_hours() -> None:
    assert counts(grouped(cut("0-2 0-2"))) == ["0-12 0/1 x2"]


@pytest.mark.row("tsdb-D6")
def test_an_unmerged_smaller_range_delays_the_larger_one() -> None:
    assert counts(grouped([*cut("0-2 0-2 2-4"), *cut("10-12 10-12", level=1)])) == ["10-12 0/1 x2"]


@pytest.mark.row("tsdb-D7")
def test_an_unmerged_range_delays_no_range_beside_it() -> None:
    found = counts(grouped([*cut("0-2 0-2 2-4"), *cut("12-14 12-14", level=1)]))
    assert found == ["12-14 0/1 x2", "0-12 0/1 x3"]


@pytest.mark.row("tsdb-D8")
def test_parts_of_two_hours_keep_their_count_at_twelve_hours() -> None:
    snapshot = cut("0-2:0/2 0-2:1/2 2-4:0/2 2-4:1/2 4-6:0/2 4-6:1/2")
    assert grouped(snapshot, limit=4) == [
        "0-12 0/2: L2 0-2:0/2, L2 2-4:0/2, L2 4-6:0/2",
        "0-12 1/2: L2 0-2:1/2, L2 2-4:1/2, L2 4-6:1/2",
    ]


@pytest.mark.row("tsdb-D9")
def test_completed_and_visited_parts_of_a_begun_group_are_skipped() -> None:
    parents = cut("0-2:0/2 0-2:1/2 2-4:0/2 2-4:1/2")
    results = cut("0-12:0/4 0-12:2/4", level=3, time_range_ms=12 * HOUR_MS)
    file = StartedGroup(
        range_ms=12 * HOUR_MS,
        start_ms=0,
        partitions=4,
        sources={n: (f"p{n}",) for n in range(4)},
        completed=frozenset(),
    )
    young = StartedGroup(range_ms=2 * HOUR_MS, start_ms=22 * HOUR_MS, partitions=1, sources={0: ("a", "b")})
    snapshot = [*parents, *results, *cut("22-24 22-24", level=1)]
    all_four = ["22-24 0/1: a, b", *(f"0-12 {n}/4: p{n}" for n in range(4))]
    assert grouped(snapshot, started=[file, young]) == all_four
    picked = grouped(snapshot, started=[replace(file, completed=frozenset({0, 2})), young])
    assert picked == [all_four[0], all_four[2], all_four[4]], "the pick drops those that are completed"
    assert grouped(snapshot, started=[replace(file, visited=frozenset({1})), young]) == [*all_four[:2], *all_four[3:]]


@pytest.mark.row("tsdb-D10")
def test_cut_and_whole_blocks_are_grouped_together() -> None:
    snapshot = cut("0-2 2-4 4-6 10-12:0/2 10-12:1/2 12-14 14-16")
    assert counts(grouped(snapshot)) == ["0-12 0/1 x5", "12-24 0/1 x2"]


@pytest.mark.row("tsdb-D11")
def test_a_group_with_all_parts_completed_has_no_jobs() -> None:
    file = StartedGroup(
        range_ms=12 * HOUR_MS,
        start_ms=0,
        partitions=2,
        sources={0: ("x",), 1: ("y",)},
        completed=frozenset({0, 1}),
    )
    snapshot = [*cut("0-2 2-4"), *cut("0-12:0/2 0-12:1/2", level=3, time_range_ms=12 * HOUR_MS)]
    assert grouped(snapshot, started=[file]) == []


@pytest.mark.row("tsdb-D12")
def test_a_late_block_joins_the_parts_of_its_slot() -> None:
    assert counts(grouped([*cut("0-2", level=1), *cut(HALVES)])) == ["0-2 0/1 x3"]


@pytest.mark.row("tsdb-D13")
def test_a_late_block_joins_the_next_range() -> None:
    assert counts(grouped([*cut("0-2", level=1), *cut("2-4:0/2 2-4:1/2 4-6")])) == ["0-12 0/1 x4"]


@pytest.mark.row("tsdb-D14")
def test_a_late_block_is_merged_in_its_slot_before_larger_ranges() -> None:
    assert counts(grouped([*cut("0-2", level=1), *cut(HALVES + " 2-4"), *cut("0-12", level=3)])) == ["0-2 0/1 x3"]


@pytest.mark.row("tsdb-D15")
def test_a_late_single_block_joins_the_result_of_twelve_hours() -> None:
    assert counts(grouped([*cut("10-12", level=1), *cut("0-12", level=3)])) == ["0-12 0/1 x2"]


@pytest.mark.row("tsdb-D16")
def test_late_replicas_are_merged_before_they_join_a_larger_result() -> None:
    found = grouped([*cut("0-2 0-2", level=1), *cut("0-12:0/2 0-12:1/2", level=3)])
    assert counts(found) == ["0-2 0/1 x2"]


@pytest.mark.row("tsdb-D17")
def test_late_single_blocks_join_the_parts_of_twelve_hours() -> None:
    found = grouped([*cut("0-2 10-12", level=1), *cut("0-12:0/2 0-12:1/2", level=3)])
    assert counts(found) == ["0-12 0/1 x4"]


@pytest.mark.row("tsdb-D18")
def test_a_late_single_block_joins_the_result_of_a_day() -> None:
    assert counts(grouped([*cut("22-24", level=1), *cut("0-24", level=4)])) == ["0-24 0/1 x2"]


@pytest.mark.row("tsdb-D19")
def test_blocks_of_two_hours_are_merged_by_twelve_hours_beside_results_of_a_day() -> None:
    found = grouped([*cut("0-2 2-4"), *cut("0-24:0/2 0-24:1/2", level=4)])
    assert found == ["0-12 0/1: L2 0-2, L2 2-4"]


@pytest.mark.row("tsdb-D20")
def test_results_of_twelve_hours_join_the_parts_of_a_day() -> None:
    found = grouped([*cut("0-12:0/2 0-12:1/2", level=3), *cut("0-24:0/2 0-24:1/2", level=4)])
    assert counts(found) == ["0-24 0/1 x4"]


@pytest.mark.row("tsdb-D21")
def test_parts_of_other_counts_are_assigned_to_the_matching_parts() -> None:
    snapshot = cut("0-2:0/4 0-2:1/4 0-2:2/4 0-2:3/4 2-4:0/2 2-4:1/2 4-6")
    assert grouped(snapshot, limit=4) == [
        "0-12 0/2: L2 0-2:0/4, L2 0-2:2/4, L2 2-4:0/2, L2 4-6",
        "0-12 1/2: L2 0-2:1/4, L2 0-2:3/4, L2 2-4:1/2, L2 4-6",
    ]


@pytest.mark.row("tsdb-D22")
def test_a_part_with_a_single_block_has_no_padding() -> None:
    snapshot = [*cut("0-2:0/2 0-2:0/2", series=2), *cut("0-2", level=1, series=2)]
    found = grouped(snapshot, limit=4, replication=1)
    assert found == ["0-2 0/2: L1 0-2, L2 0-2:0/2, L2 0-2:0/2'", "0-2 1/2: L1 0-2"], "alone, and filtered, not padded"


MADE = group_id("A", 0, 12 * HOUR_MS)


@pytest.mark.row("tsdb-D23")
def test_results_of_the_same_group_are_not_merged_again() -> None:
    assert grouped(cut(HALVES, produced_by=MADE)) == []
    day = group_id("A", 0, 24 * HOUR_MS)
    assert grouped(cut("0-12:0/2 0-12:1/2", level=3, produced_by=day)) == []


@pytest.mark.row("tsdb-D24")
def test_results_of_a_group_are_merged_again_with_a_new_block() -> None:
    assert counts(grouped([*cut(HALVES, produced_by=MADE), *cut("2-4", produced_by=7)])) == ["0-12 0/1 x3"]


@pytest.mark.row("tsdb-D25")
def test_late_blocks_wait_until_a_completed_group_is_cleaned() -> None:
    file = StartedGroup(
        range_ms=2 * HOUR_MS, start_ms=0, partitions=1, sources={0: ("gone",)}, completed=frozenset({0})
    )
    late = [*cut("0-2 0-2", level=1), *cut("0-2")]
    assert grouped(late, started=[file]) == []
    assert counts(grouped(late)) == ["0-2 0/1 x3"], "once the file is cleaned"


MINUTES = 1 / 60
EARLY = block("early", 10 + 49 * MINUTES, 11 + 47 * MINUTES)


@pytest.mark.row("tsdb-D26")
def test_a_block_without_a_time_range_is_placed_by_its_span() -> None:
    wide = block("wide", 10 + 49 * MINUTES, 16, level=4)
    assert grouped([EARLY, wide]) == ["0-24 0/1: early, wide"]


@pytest.mark.row("tsdb-D27")
def test_a_block_with_a_time_range_is_placed_by_it() -> None:
    assert grouped([EARLY, block("wide", 1, 10, level=4, time_range_ms=24 * HOUR_MS)]) == ["0-24 0/1: wide, early"]


@pytest.mark.row("tsdb-D28")
def test_a_block_of_a_short_span_without_a_time_range_is_placed_by_twelve_hours() -> None:
    assert grouped([EARLY, block("wide", 1, 10, level=4)]) == ["0-12 0/1: wide, early"]


@pytest.mark.row("tsdb-D29")
def test_blocks_wait_until_their_slot_ended_two_cleanup_intervals_ago() -> None:
    four = cut("10-12 10-12 10-12 10-12", level=1)
    assert grouped(four, now=12, cleanup_min=60) == []
    assert grouped(four, now=14, cleanup_min=60) == []
    assert counts(grouped(four, now=14.01, cleanup_min=60)) == ["10-12 0/1 x4"]


def test_the_partitioning_rules_are_chosen_by_name() -> None:
    found = plan_intervals("A", [*D4, *cut("0-2", level=1)], PARTITIONING, now_ms=LATER_MS)
    assert told(found) == [" 0-2 x3"]
    assert found.statuses["L2 12-14"].reason == "the rules reference-partitions do not group it now"
