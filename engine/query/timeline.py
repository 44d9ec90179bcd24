"""The timeline beside a flame graph of the older GET API: one integer per step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.query.select_points import Point

POINTS_MAX = 1_500
STEP_MIN_S = 15
_STEPS = ((17.5, 15), (25, 20), (45, 30), (90, 60), (210, 120), (450, 300), (750, 600), (1_050, 900), (1_500, 1_200), (2_700, 1_800), (5_400, 3_600), (9_000, 7_200), (16_200, 10_800), (32_400, 21_600), (86_400, 43_200), (604_800, 86_400), (1_814_400, 604_800))  # fmt: skip  # noqa: E501
"""Upper bounds of the computed step in seconds, and the round step used for each."""
_MONTHS_BELOW_S, _MONTH_S, _YEAR_S = 3_628_800, 2_592_000, 31_536_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """``samples[i]`` is the value of the ``step_s`` seconds that begin at ``start_s`` + i steps (unix seconds)."""

    start_s: int
    step_s: int
    samples: list[int]


def step_of(start_ms: int, end_ms: int) -> int:
    """Return the step of a range in seconds."""
    wanted = (end_ms - start_ms) / 1_000 / POINTS_MAX
    if wanted < STEP_MIN_S:
        return STEP_MIN_S
    for most, step in _STEPS:
        if wanted <= most:
            return step
    return _MONTH_S if wanted < _MONTHS_BELOW_S else _YEAR_S


def timeline(points: Iterable[Point], start_ms: int, end_ms: int, step_s: int) -> Timeline:
    """Return the timeline of points within the range, rounded down to whole steps."""
    start_s, end_s = (moment // 1_000 // step_s * step_s for moment in (start_ms, end_ms))
    samples = [0] * max(0, (end_s - start_s) // step_s)
    for point in points:
        place = (point.time_ms // 1_000 - start_s) // step_s
        if 0 <= place < len(samples):
            samples[place] += max(0, int(point.value))
    return Timeline(start_s, step_s, samples)
