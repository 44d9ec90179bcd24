"""Sizing: the answer fits what can be worked out by hand, and the curve shows a fleet that is too small."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from engine.simulation.plot import backlog_plot
from engine.simulation.scenario import MIB, Fleet, Workload
from engine.simulation.simulate import Sample
from engine.simulation.sizing import size_fleet

LOAD = Workload(segments_per_s=4.0, segment_bytes=MIB)
PRICES = Fleet(workers=0, fixed_ms=1_000.0, ms_per_mib=1_000.0)


@pytest.mark.slow
def test_the_demand_is_what_the_load_costs() -> None:
    sizing = size_fleet(LOAD, PRICES, hours=0.5, seed=1)
    # 4 MiB a second cost 4 slots at level 0, and each further level what is left of the bytes.
    assert 4.0 < sizing.demand_slots < 8.0
    assert sizing.workers_needed == sizing.workers >= 5
    assert not sizing.is_growing()
    assert 0.5 < sizing.utilisation < 0.95


@pytest.mark.slow
def test_a_fleet_that_is_too_small_has_a_backlog_that_grows() -> None:
    small = size_fleet(LOAD, Fleet(workers=2, fixed_ms=1_000.0, ms_per_mib=1_000.0), hours=0.5, seed=1)
    assert small.workers == 2 < small.workers_needed
    assert small.is_growing()
    assert small.utilisation > 0.95
    assert small.samples[-1].queued_blocks > 10 * small.samples[len(small.samples) // 10].queued_blocks > 0


@pytest.mark.slow
def test_twice_the_slots_halve_the_workers() -> None:
    one = size_fleet(LOAD, PRICES, hours=0.25, seed=1)
    two = size_fleet(LOAD, Fleet(workers=0, slots=2, fixed_ms=1_000.0, ms_per_mib=1_000.0), hours=0.25, seed=1)
    assert two.workers_needed == -(-one.workers_needed // 2)


def test_the_answer_is_plain_json_with_a_curve() -> None:
    document = json.loads(json.dumps(size_fleet(LOAD, PRICES, hours=0.1, seed=1).to_json()))
    assert len(set(map(len, document["curve"].values()))) == 1
    assert document["segments"] == pytest.approx(4 * 360, rel=0.2)


@pytest.mark.parametrize("count", [0, 1, 50])
def test_the_plot_is_a_picture_with_two_curves(count: int) -> None:
    samples = [Sample(at_s=60.0 * n, queued_blocks=n, live_jobs=1, busy_slots=1, wait_s=2.0 * n) for n in range(count)]
    picture = ElementTree.fromstring(backlog_plot(samples))
    curves = picture.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(curve.attrib["points"].split()) for curve in curves] == [count, count]
