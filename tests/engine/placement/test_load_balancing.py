"""By fingerprint or round robin (sheet, section 9; rows L32, L33; weaknesses 17.1 and 17.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.placement.load_balancing import HOLD_MAX_S, HOLD_S, TRIAL_S, Balance, choose_balance, is_skewed
from engine.placement.model import LoadBalancing
from engine.placement.statistics import DatasetStatistics, ShardUsage, population_deviation

UNIT = 128 * 1024
RANDOM, STABLE, DYNAMIC = LoadBalancing.ROUND_ROBIN, LoadBalancing.FINGERPRINT, LoadBalancing.DYNAMIC


def statistics(*units: float) -> DatasetStatistics:
    usages = [int(unit * UNIT) for unit in units]
    shards = tuple(ShardUsage(shard=number, owner="w", usage=usage) for number, usage in enumerate(usages))
    return DatasetStatistics(tenant="a", dataset="d", shards=shards, deviation=population_deviation(usages))


SKEWED, EVEN = statistics(4, 0.25, 0.25, 0.25), statistics(1, 1, 1, 1)


@pytest.mark.parametrize(
    ("units", "target", "skewed"),
    [
        ((2, 1, 1, 1, 1), 5, False),
        ((2, 0.5, 1, 1, 1), 5, False),
        ((2, 0.5, 0.5, 1, 1), 5, True),
        ((2, 2, 0.5, 0.5, 0.5), 5, True),
        ((2, 2, 0.5, 0.5, 0.5), 3, True),
        ((2, 2, 0.5, 0.5), 2, True),
        ((2, 2, 0.5, 0.5, 0.5), 2, False),
        ((2, 2, 2, 2, 2), 5, False),
        (((2 * UNIT - 1) / UNIT, 0), 1, False),
        ((2, 0), 2, True),
        ((9,), 1, False),
        ((), 1, False),
        ((0, 0), 2, False),
        ((4, 0.25), 5, False),  # fewer than half the shards are in use yet
    ],
)
def test_strategies_follow_the_skew_of_the_usage(units: tuple[float, ...], target: int, skewed: bool) -> None:
    found = statistics(*units) if units else replace(EVEN, shards=(), deviation=0.0)
    assert is_skewed(found, target, UNIT) is skewed
    wanted = RANDOM if skewed else STABLE
    assert choose_balance(Balance(), DYNAMIC, found, target, UNIT, 5.0).choice is wanted


@pytest.mark.parametrize("configured", [STABLE, RANDOM])
def test_a_fixed_choice_is_applied_each_time(configured: LoadBalancing) -> None:
    for before in (STABLE, RANDOM):
        assert choose_balance(Balance(choice=before), configured, SKEWED, 4, UNIT, 5.0).choice is configured


@pytest.mark.row("L33")
def test_the_fingerprint_strategy_returns_after_the_hold_time() -> None:
    """While requests are spread at random no skew can be seen: time decides, not the statistics."""
    state = choose_balance(Balance(), DYNAMIC, SKEWED, 4, UNIT, 100.0)
    assert state.choice is RANDOM
    for now in (101.0, 100.0 + HOLD_S - 1):
        state = choose_balance(state, DYNAMIC, EVEN, 4, UNIT, now)
        assert state.choice is RANDOM
    state = choose_balance(state, DYNAMIC, EVEN, 4, UNIT, 100.0 + HOLD_S)
    assert state.choice is STABLE
    for now in (HOLD_S + 200, HOLD_S + 9_000):
        state = choose_balance(state, DYNAMIC, EVEN, 4, UNIT, now)
        assert state.choice is STABLE


def test_a_skew_that_is_back_at_once_is_held_twice_as_long_and_not_for_ever() -> None:
    now, state, holds = 100.0, choose_balance(Balance(), DYNAMIC, SKEWED, 4, UNIT, 100.0), []
    for _ in range(7):
        holds.append(state.hold_s)
        now += state.hold_s
        state = choose_balance(state, DYNAMIC, EVEN, 4, UNIT, now)
        assert state.choice is STABLE
        now += 60
        state = choose_balance(state, DYNAMIC, SKEWED, 4, UNIT, now)
        assert state.choice is RANDOM
    assert holds == [HOLD_S, 2 * HOLD_S, 4 * HOLD_S, 8 * HOLD_S, 16 * HOLD_S, HOLD_MAX_S, HOLD_MAX_S]


def test_a_skew_that_comes_much_later_is_a_new_one() -> None:
    state = Balance(choice=RANDOM, since_s=0.0, hold_s=4 * HOLD_S)
    state = choose_balance(state, DYNAMIC, EVEN, 4, UNIT, 4 * HOLD_S)
    state = choose_balance(state, DYNAMIC, SKEWED, 4, UNIT, 4 * HOLD_S + TRIAL_S)
    assert (state.choice, state.hold_s) == (RANDOM, HOLD_S)
