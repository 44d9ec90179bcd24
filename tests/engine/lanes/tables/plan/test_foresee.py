"""What a plan would do, and that the plan after it does nothing: with whole files, folders, spans, other settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.tables.plan import forecast as foreseeing
from engine.lanes.tables.plan.forecast import apply_plan, forecast_plan
from engine.lanes.tables.plan.granularity import DAY_MS, Granularity
from engine.lanes.tables.plan.model import Segment
from engine.lanes.tables.plan.plan import plan_timeline
from engine.lanes.tables.plan.policy import MB, TimelinePolicy

NOW_MS = 400 * DAY_MS
POLICY = TimelinePolicy(partial_visibility=False)


def entry(first_key: int, day: int, sizes_mb: list[int], days: int = 1, **told: object) -> list[Segment]:
    """One entry of segments with these sizes."""
    start_ms = (300 + day) * DAY_MS
    return [
        Segment(
            key=first_key + number,
            start_ms=start_ms,
            end_ms=start_ms + days * DAY_MS,
            version="v1",
            partition=number,
            size_bytes=size * MB,
            **told,  # type: ignore[arg-type]
        )
        for number, size in enumerate(sizes_mb)
    ]


def test_small_files_of_ten_days_are_two_tasks_and_then_none() -> None:
    segments = [one for day in range(10) for one in entry(day * 24 + 1, day, [5] * 24)]
    told = forecast_plan("table", segments, POLICY, now_ms=NOW_MS)
    assert (len(told.plan.tasks), told.chunks, told.segments_in, told.segments_out) == (2, 10, 240, 10)
    assert (told.bytes_in, told.cost) == (1_200 * MB, 2_160 * MB)
    assert told.is_fix_point


def test_good_files_are_left_alone() -> None:
    told = forecast_plan("table", entry(1, 0, [300]), POLICY, now_ms=NOW_MS)
    assert (told.plan.tasks, told.bytes_in, told.again) == ((), 0, ())


def test_each_folder_of_a_chunk_has_files_of_its_own() -> None:
    segments = entry(1, 0, [30] * 40, folder="region=eu") + [
        replace(one, partition=one.partition + 40) for one in entry(50, 0, [10] * 3, folder="region=us")
    ]
    plan = plan_timeline("table", segments, POLICY, now_ms=NOW_MS)
    after = [one for one in apply_plan(segments, plan, POLICY) if one.version != "v1"]
    assert [(one.folder, one.size_bytes) for one in after] == [
        ("region=eu", 400 * MB),
        ("region=eu", 400 * MB),
        ("region=eu", 400 * MB),
        ("region=us", 30 * MB),
    ]
    assert forecast_plan("table", segments, POLICY, now_ms=NOW_MS).is_fix_point


def test_a_file_of_a_month_under_days_becomes_files_of_days() -> None:
    told = forecast_plan("table", entry(1, 0, [600], days=29), POLICY, now_ms=NOW_MS)
    assert (told.chunks, told.segments_in, told.segments_out, told.again) == (29, 1, 29, ())


def test_chunks_that_would_be_rewritten_again_are_named_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    segments = [one for day in range(2) for one in entry(day * 24 + 1, day, [5] * 24)]
    monkeypatch.setattr(
        foreseeing, "apply_plan", lambda segments, plan, policy: list(segments)
    )  # merges that do nothing
    told = forecast_plan("table", segments, POLICY, now_ms=NOW_MS)
    assert not told.is_fix_point
    assert [(chunk.start_ms, chunk.reason) for chunk in told.again] == [
        (300 * DAY_MS, "24 segments of 114 MiB could be 1"),
        (301 * DAY_MS, "24 segments of 114 MiB could be 1"),
    ]


DAYS = st.integers(0, 12)
ENTRY = st.tuples(DAYS, st.integers(1, 9), st.lists(st.integers(0, 1_300), min_size=1, max_size=12), st.booleans())


@given(
    st.lists(ENTRY, min_size=1, max_size=6),
    st.sampled_from(["day", "week", "PT6H", "month"]),
    st.sampled_from([1_000, 300, 60]),
)
def test_what_is_left_comes_to_rest(
    entries: list[tuple[int, int, list[int], bool]], period: str, small_mb: int
) -> None:
    policy = replace(
        POLICY, granularity=Granularity(period=period), small_cost=small_mb * MB, cost_max=2 * small_mb * MB
    )
    segments = []
    for number, (day, days, sizes, has_folders) in enumerate(entries):
        made = entry(1 + number * 100, day, sizes, days)
        segments += [
            replace(one, version=f"v{number}", folder=f"k={one.partition % 2}" if has_folders else "") for one in made
        ]
    told = forecast_plan("table", segments, policy, now_ms=NOW_MS)
    assert told.again == ()
    assert told.segments_out == sum(chunk.out for task in told.plan.tasks for chunk in task.chunks)
