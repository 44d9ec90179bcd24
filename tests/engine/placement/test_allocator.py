"""How many shards a dataset gets: the origin's traces and ours (sheet, 8 and 13.4; L30, L31; properties 10, 11)."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.placement.allocator import Allocation, allocate
from engine.placement.model import TenantLimits
from engine.placement.rate import RateEstimator
from engine.placement.reference import WindowAllocator

KIB = 1024
UNIT = 128 * KIB
ORIGIN_S = 1_000_000.0
DECAY_S = 1140.0


def origin(
    low: int = 1, high: int = 1024, unit: int = UNIT, burst: float = 1020, decay: float = DECAY_S
) -> WindowAllocator:
    return WindowAllocator(unit_bytes=unit, shards_min=low, shards_max=high, burst_window_s=burst, decay_window_s=decay)


def traced(state: WindowAllocator, steps: list[tuple[float, float]]) -> list[tuple[int, int, int, int]]:
    """Return target, multiplier, previous and current need after each (second, usage)."""
    found = []
    for second, usage in steps:
        state = state.observe(int(usage), ORIGIN_S + second)
        found.append((state.target, state.multiplier, state.previous_need, state.current_need))
    return found


def limits(**fields: float) -> TenantLimits:
    return TenantLimits(**fields)  # type: ignore[arg-type]


def targets(usages: list[tuple[float, float]], bounds: TenantLimits, state: Allocation | None = None) -> list[int]:
    state = state or Allocation()
    found = []
    for second, usage in usages:
        state = allocate(state, int(usage), ORIGIN_S + second, bounds)
        found.append(state.target)
    return found


def test_the_origins_own_table_holds() -> None:
    state, found = origin(high=5, unit=10, burst=50, decay=50), []
    table = [(0, 0, 1), (0, 1, 1), (5, 2, 1), (10, 3, 2), (10, 4, 2), (11, 5, 2), (20, 6, 5), (10, 7, 5), (5, 8, 5)]
    table += [(5, 9, 5), (5, 51, 5), (5, 101, 1), (100, 151, 5)]
    for usage, second, _ in table:
        state = state.observe(usage, second)
        found.append(state.target)
    assert found == [shards for _, _, shards in table]


def test_trace_a_a_step() -> None:
    found = traced(origin(), [*((t, 100 * KIB) for t in (0, 15, 30, 45)), (60, KIB * KIB), (75, KIB * KIB)])
    assert found == [(1, 1, 0, 1)] * 4 + [(18, 2, 0, 18)] * 2


def test_trace_b_a_ramp_of_a_unit_each_tick() -> None:
    found = traced(origin(), [(15 * step, step * UNIT) for step in range(12)])
    assert [row[0] for row in found] == [1, 4, 4, 4, 9, 9, 9, 9, 9, 18, 18, 18]
    assert (found[1], found[4], found[9]) == ((4, 2, 0, 4), (9, 4, 0, 9), (18, 8, 0, 18))


def test_trace_c_a_spike_falls_off_a_cliff() -> None:
    steps = [(0, UNIT / 2), (15, 20 * UNIT), *((t, UNIT / 2) for t in (30, 1080, 1140, 1200, 2220, 2280))]
    found = traced(origin(), steps)
    assert [row[0] for row in found] == [1, 42, 42, 42, 42, 42, 42, 1]
    assert (found[1], found[4], found[7]) == ((42, 2, 0, 42), (42, 2, 42, 1), (1, 2, 1, 1))


def test_trace_d_slow_growth_is_not_boosted() -> None:
    found = traced(origin(), [(1200 * step, step * UNIT) for step in range(8)])
    assert [row[:2] for row in found] == [(shards, 1) for shards in range(1, 9)]


def test_trace_e_the_boost_climbs_at_the_maximum() -> None:
    ramp = [(15 * step, 2 * step * UNIT) for step in range(10)]
    found = traced(origin(high=10), [*ramp, (150, 0), (1141, 0), (2282, 0)])
    assert [row[0] for row in found] == [1, 6, 6, 10, 10, 10, 10, 10, 10, 10, 10, 10, 1]
    assert [(row[1], row[3]) for row in found[3:10]] == [
        (4, 11),
        (4, 11),
        (8, 19),
        (16, 26),
        (16, 30),
        (16, 34),
        (16, 38),
    ]
    assert found[11][1:] == (16, 38, 1)


def test_trace_f_the_minimum_holds() -> None:
    found = traced(origin(low=5), [(0, 0), (15, 6 * UNIT), (30, 0), (1200, 0), (2400, 0), (3600, 0)])
    assert [row[0] for row in found] == [5, 11, 11, 11, 5, 5]
    assert [row[1:] for row in found[:5]] == [(1, 0, 1), (2, 0, 11), (2, 0, 11), (2, 11, 1), (2, 1, 1)]


def followed(rate: float, until: int, seconds: int) -> list[tuple[int, int, int]]:
    """Feed ``rate`` bytes each second until then, look every 15 s: (second, usage, shards) where shards changed."""
    estimator, state, found = RateEstimator(180, ORIGIN_S), origin(), []
    for second in range(seconds):
        estimator.add(rate if second < until else 0, ORIGIN_S + second)
        if second % 15 == 0:
            usage = round(estimator.value(ORIGIN_S + second))
            before, state = state.target, state.observe(usage, ORIGIN_S + second)
            if state.target != before:
                found.append((second, usage, state.target))
    return found


@pytest.mark.parametrize(
    ("kib", "until", "changes"),
    [
        (64, 9_999, [(0, 0, 1)]),
        (1024, 9_999, [(0, 0, 1), (45, 166_832, 4), (180, 524_288, 9), (2280, 1_048_415, 8)]),
        (
            1024,
            1_800,
            [(0, 0, 1), (45, 166_832, 4), (180, 524_288, 9), (2280, 164_979, 8), (3420, 2_046, 2), (4560, 25, 1)],
        ),
        (
            8192,
            9_999,
            [
                *[(0, 0, 1), (15, 470_816, 8), (45, 1_334_658, 22), (120, 3_104_116, 40)],
                *[(255, 5_246_430, 57), (585, 7_506_864, 74), (2280, 8_387_318, 64)],
            ],
        ),
    ],
)
def test_estimator_and_allocator_together_follow_the_traces(
    kib: int, until: int, changes: list[tuple[int, int, int]]
) -> None:
    # Later still, a constant rate is rounded up to a whole number of units, which takes a shard more.
    assert followed(kib * KIB, until, 4_700 if until == 1_800 else 3_600) == changes


def test_ours_grows_like_the_origin() -> None:
    steps: list[tuple[float, float]] = [(15 * step, step * UNIT) for step in range(12)]
    assert targets(steps, limits()) == [row[0] for row in traced(origin(), steps)]


@pytest.mark.row("placement-weakness-17.9")
def test_shards_are_released_in_steps_and_not_all_at_once() -> None:
    steps: list[tuple[float, float]] = [(0, 20 * UNIT), *((15 * tick, UNIT / 2) for tick in range(1, 170))]
    found = targets(steps, limits())
    falls = [before - after for before, after in itertools.pairwise(found) if before != after]
    assert falls == [10, 10]
    assert found[round(DECAY_S / 15) - 1] == 21
    assert found[round(2 * DECAY_S / 15)] == 1
    cliff = [row[0] for row in traced(origin(), steps)]
    assert max(before - after for before, after in itertools.pairwise(cliff)) == 20
    assert sum(found) < sum(cliff)


@pytest.mark.row("L30")
def test_a_continuous_rise_never_decreases_a_target() -> None:
    found = targets([(15 * tick, 2 * tick * UNIT) for tick in range(100)], limits(dataset_shards_max=10))
    assert found == sorted(found)
    assert found[-1] == 10


@pytest.mark.row("L31")
@pytest.mark.parametrize("units", [0, 1, 2, 7])
def test_a_usage_of_exactly_k_units_needs_k_plus_1_shards(units: int) -> None:
    assert targets([(0, units * UNIT)], limits()) == [units + 1]
    assert traced(origin(), [(0, units * UNIT)])[0][0] == units + 1


def test_a_usage_below_nothing_counts_as_none() -> None:
    assert targets([(0, -5 * UNIT)], limits()) == [1]


bounds = st.tuples(st.integers(1, 20), st.integers(0, 40)).map(
    lambda pair: limits(dataset_shards_min=pair[0], dataset_shards_max=pair[0] + pair[1], unit_bytes=10)
)
usages = st.lists(st.tuples(st.integers(1, 900), st.integers(0, 600)), min_size=1, max_size=40)


@pytest.mark.row("placement-property-10")
@given(usages, bounds)
def test_targets_stay_in_their_bounds(steps: list[tuple[int, int]], allowed: TenantLimits) -> None:
    now, state, history = ORIGIN_S, Allocation(), []
    for wait, usage in steps:
        now += wait
        before, state = state.target, allocate(state, usage, now, allowed)
        need = usage // 10 + 1
        assert allowed.dataset_shards_min <= state.target <= allowed.dataset_shards_max
        assert state.target >= min(allowed.dataset_shards_max, need)
        assert state.target <= max(allowed.dataset_shards_min, before, 2 * need)
        # What was reached less than a decay window ago is still there.
        recent = [target for second, target in history if now - second < allowed.decay_window_s]
        rises = [later for earlier, later in itertools.pairwise([0, *recent]) if later > earlier]
        assert state.target >= max(rises[1:], default=0)
        history.append((now, state.target))
        assert len(state.needs) <= 17


@pytest.mark.row("placement-property-10")
@given(usages, bounds, st.integers(0, 600), st.integers(5, 120))
def test_a_constant_usage_settles_within_two_windows(
    steps: list[tuple[int, int]], allowed: TenantLimits, usage: int, tick: int
) -> None:
    now, state = ORIGIN_S, Allocation()
    for wait, earlier in steps:
        now += wait
        state = allocate(state, earlier, now, allowed)
    for _ in range(math.ceil(2 * allowed.decay_window_s / tick) + 2):
        now += tick
        state = allocate(state, usage, now, allowed)
    assert state.target == min(allowed.dataset_shards_max, max(allowed.dataset_shards_min, usage // 10 + 1))


@pytest.mark.row("placement-property-11")
@given(st.integers(1, 40), st.lists(st.integers(0, 1_000), min_size=1, max_size=30))
def test_restored_shards_stay_for_a_decay_window(shards: int, usages: list[int]) -> None:
    allowed = limits(unit_bytes=10)
    state = Allocation.restored(shards, ORIGIN_S)
    for tick, usage in enumerate(usages):
        state = allocate(state, usage, ORIGIN_S + min(15.0 * tick, DECAY_S - 1), allowed)
        assert state.target >= shards
