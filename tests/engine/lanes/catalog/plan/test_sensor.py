"""When a branch is compacted and why, and where a build runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lanes.catalog.plan.sensor import (
    BranchLoad,
    Budget,
    BuildPath,
    Decision,
    Held,
    PathLimits,
    SensorPolicy,
    build_path,
    decide,
)

POLICY = SensorPolicy(tombstones=10, sealed_rows=100, sealed_tokens=4, sealed_age_s=600.0, wasteful_lists=3)


def load(**fields: object) -> BranchLoad:
    return BranchLoad(**{"branch": "main", **fields})  # type: ignore[arg-type]


def decided(policy: SensorPolicy = POLICY, **fields: object) -> Decision:
    return decide([load(**fields)], policy, Budget())[0]


@pytest.mark.row("B74")
def test_branches_are_counted_separately() -> None:
    loads = [load(branch=name, tombstones=9) for name in "abc"]
    assert [each.held for each in decide(loads, POLICY, Budget())] == [Held.QUIET] * 3


@pytest.mark.row("B75")
@pytest.mark.parametrize(("deletes", "times"), [(19, 1), (20, 2)])
def test_the_sensor_fires_once_each_time_the_threshold_is_reached(deletes: int, times: int) -> None:
    fired = counted = 0
    for _ in range(deletes):
        counted += 1
        if decided(tombstones=counted).fires:
            fired, counted = fired + 1, 0  # the compaction took them away
    assert fired == times


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tombstones": 10}, "tombstones 10 of 10"),
        ({"sealed_rows": 250}, "sealed_rows 250 of 100"),
        ({"sealed_tokens": 4}, "sealed_tokens 4 of 4"),
        ({"sealed_age_s": 600.0}, "sealed_age_s 600 of 600"),
        ({"wasteful_lists": 3}, "wasteful_lists 3 of 3"),
        ({"tombstones": 20, "sealed_tokens": 5}, "tombstones 20 of 10, sealed_tokens 5 of 4"),
    ],
)
def test_each_signal_fires_with_its_reason(fields: dict[str, object], reason: str) -> None:
    assert (decided(**fields).fires, decided(**fields).reason) == (True, reason)


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"tombstones": 9, "sealed_rows": 99, "sealed_tokens": 3, "wasteful_lists": 2}, Held.QUIET),
        ({"sealed_age_s": None, "sealed_tokens": 1}, Held.QUIET),
        ({"tombstones": 99, "is_running": True}, Held.RUNNING),
        ({"tombstones": 99, "begun_s_ago": 299.0}, Held.COOLDOWN),
        ({"tombstones": 99, "begun_s_ago": 300.0}, Held.FIRES),
        ({"tombstones": 99, "begun_s_ago": 599.0, "took_s": 60.0}, Held.COOLDOWN),
        ({"tombstones": 99, "begun_s_ago": 600.0, "took_s": 60.0}, Held.FIRES),
        ({"tombstones": 99, "begun_s_ago": 1_199.0, "lost_in_a_row": 2}, Held.COOLDOWN),
        ({"tombstones": 99, "begun_s_ago": 1_200.0, "lost_in_a_row": 2}, Held.FIRES),
        ({"tombstones": 99, "begun_s_ago": 9_600.0, "lost_in_a_row": 99}, Held.FIRES),
        ({"sealed_tokens": 32, "begun_s_ago": 1.0}, Held.FIRES),
    ],
)
def test_what_holds_a_branch_back(fields: dict[str, object], held: Held) -> None:
    assert decided(**fields).held is held


def test_a_waiting_branch_has_its_remaining_time() -> None:
    decision = decided(tombstones=30, begun_s_ago=100.0)
    assert decision.ready_in_s == 200.0
    assert decision.reason == "the branch is in its cooldown (ready in 200 s); tombstones 30 of 10"


def test_a_switched_off_repository_and_a_threshold_of_zero() -> None:
    assert decided(SensorPolicy(is_enabled=False), tombstones=10**6).held is Held.DISABLED
    assert decided(SensorPolicy(tombstones=0), tombstones=10**6).held is Held.QUIET


def test_what_is_wanted_stays_so_until_it_is_well_below() -> None:
    assert not decided(tombstones=9).is_wanted
    assert decided(tombstones=10).is_wanted
    assert decided(tombstones=5, was_wanted=True).is_wanted
    assert not decided(tombstones=4, was_wanted=True).is_wanted


def test_the_worst_come_first_and_the_budget_holds_the_others() -> None:
    loads = [load(branch=name, tombstones=count) for name, count in (("a", 10), ("b", 50), ("c", 20), ("d", 50))]
    decisions = decide(loads, POLICY, Budget())
    assert [(each.branch, each.held) for each in decisions] == [
        ("b", Held.FIRES),
        ("d", Held.FIRES),
        ("c", Held.BUDGET),
        ("a", Held.BUDGET),
    ]
    assert not any(each.fires for each in decide(loads, POLICY, Budget(running=2)))


def test_bytes_are_budgeted_and_a_branch_above_the_whole_budget_still_fires() -> None:
    large = load(tombstones=10, bytes_to_rewrite=POLICY.bytes_per_hour + 1)
    assert decide([large], POLICY, Budget())[0].fires
    assert decide([large], POLICY, Budget(bytes_last_hour=1))[0].held is Held.BUDGET


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8), st.booleans()), max_size=8), st.integers(0, 3))
def test_never_more_than_the_budget_and_every_branch_has_an_answer(
    given_loads: list[tuple[int, int, bool]], running: int
) -> None:
    loads = [
        load(branch=str(number), tombstones=one, sealed_tokens=two, is_running=three)
        for number, (one, two, three) in enumerate(given_loads)
    ]
    decisions = decide(loads, POLICY, Budget(running=running))
    assert sorted(each.branch for each in decisions) == sorted(each.branch for each in loads)
    assert sum(each.fires for each in decisions) <= max(0, POLICY.running_max - running)
    assert all(each.is_wanted and each.signals for each in decisions if each.fires)
    assert decide(loads[::-1], POLICY, Budget(running=running)) == decisions


def test_where_a_build_runs() -> None:
    limits = PathLimits(rows=10, size=100)
    cases = [
        (0, 0, 0, "pointer"),
        (10, 100, 2, "local"),
        (11, 0, 2, "spark"),
        (0, 101, 2, "spark"),
        (99, 999, 1, "local"),
    ]
    assert [build_path(rows=rows, size=size, units=units, limits=limits) for rows, size, units, _ in cases] == [
        BuildPath(path) for *_, path in cases
    ]
