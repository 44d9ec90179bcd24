"""The strip over a flame graph: rows 53 to 55 of the profile API sheet."""

from __future__ import annotations

import pytest

from engine.query.select_points import Point
from engine.query.timeline import step_of, timeline

DAY_S = 86_400


def drawn(points: dict[int, int], start_ms: int, end_ms: int, step_s: int) -> tuple[int, list[int]]:
    """Return start and samples; points are given by their second."""
    found = timeline((Point(second * 1000, value) for second, value in points.items()), start_ms, end_ms, step_s)
    return found.start_s, found.samples


@pytest.mark.row("profile-api-53")
def test_range_and_points_are_aligned_to_whole_steps() -> None:
    points = {23: 69, 53: 91}
    assert drawn(points, 3_000, 63_000, 10) == (0, [0, 0, 69, 0, 0, 91])
    assert drawn(points, 3_000, 53_000, 10) == (0, [0, 0, 69, 0, 0])


@pytest.mark.row("profile-api-54")
def test_ranges_that_start_or_end_within_a_second_are_rounded_to_steps() -> None:
    points = {2: 69, 3: 83, 6: 85, 8: 91}
    samples = [0, 0, 69, 83, 0, 0, 85, 0, 91, 0]
    assert drawn(points, 0, 10_000, 1) == (0, samples)
    assert drawn(points, 500, 10_000, 1) == (0, samples)
    assert drawn(points, 0, 8_500, 1) == (0, samples[:8])
    assert drawn(points, 5_000, 5_000, 1) == (5, [])
    assert drawn(points, 9_000, 5_000, 1)[1] == []


def test_values_are_whole_and_not_negative() -> None:
    assert drawn({0: -5, 1: 2}, 0, 2_000, 1) == (0, [0, 2])
    assert timeline([Point(0, 1.9)], 0, 1_000, 1).samples == [1]


@pytest.mark.row("profile-api-55")
@pytest.mark.parametrize(
    ("seconds", "step"),
    [
        (3_600, 15),
        (7 * DAY_S, 300),
        (30 * DAY_S, 1_800),
        (180 * DAY_S, 10_800),
        (360 * DAY_S, 21_600),
        (720 * DAY_S, 43_200),
        (1_800 * DAY_S, 86_400),
        (1_814_400 * 1_500, 604_800),
        (3_628_799 * 1_500, 2_592_000),
        (3_628_800 * 1_500, 31_536_000),
    ],
)
def test_the_step_follows_the_length_of_the_range(seconds: int, step: int) -> None:
    assert step_of(1_000, 1_000 + seconds * 1_000) == step
