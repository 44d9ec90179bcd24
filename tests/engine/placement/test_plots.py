"""The pictures: one per trace and archetype, well formed, and drawn from what the allocators really do."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from engine.placement.plots.chart import Line, line_chart
from engine.placement.plots.load_curves import ALLOCATION_S, DAY_S, LOAD_CURVES, all_plots, simulate_day
from engine.placement.plots.traces import TRACES, Trace

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.slow
def test_there_is_a_picture_of_every_trace_and_archetype() -> None:
    pictures = all_plots()
    assert len(pictures) == len(TRACES) + len(LOAD_CURVES) == 10
    for name, text in pictures.items():
        lines = ElementTree.fromstring(text).findall(f"{SVG}polyline")
        assert len(lines) == (3 if name.startswith("trace") else 4), name
        for line in lines:
            points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
            assert all(0 <= x <= 720 and 0 <= y <= 360 for x, y in points)


def test_a_step_keeps_its_value_until_the_next() -> None:
    text = line_chart("a < b", "s", [0, 1, 2], [Line(label="n", colour="#000", values=[1, 1, 2], is_step=True)])
    points = ElementTree.fromstring(text).findall(f"{SVG}polyline")[0].attrib["points"].split()
    assert len(points) == 4
    assert points[2].split(",")[1] == points[1].split(",")[1]


@pytest.mark.parametrize(
    ("trace", "peak"), zip(TRACES, [18, 18, 42, 8, 10, 11], strict=True), ids=lambda value: getattr(value, "name", "")
)
def test_both_allocators_peak_alike_on_each_trace(trace: Trace, peak: int) -> None:
    assert max(trace.reference()) == max(trace.ours()) == peak


@pytest.mark.parametrize("name", LOAD_CURVES)
def test_over_a_day_ours_gives_no_more_than_the_reference_and_is_not_later(name: str) -> None:
    day = simulate_day(LOAD_CURVES[name])
    assert len(day.hours) == DAY_S // ALLOCATION_S + 1
    assert day.over_allocation(day.ours) <= 1.01 * day.over_allocation(day.reference)
    assert day.is_short(day.ours) <= day.is_short(day.reference) + 0.001
    assert max(day.ours) <= 32
