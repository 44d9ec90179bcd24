"""Many histories: everything goes wrong in all orders, and every invariant holds after every step."""

from __future__ import annotations

import importlib
import re
import shlex
from dataclasses import replace

import pytest

from engine.lanes.profiles.plan import consolidation, levels
from engine.schedule import prepare as shipped
from engine.simulation.checks import invariants
from engine.simulation.checks.audit import InvariantBroken
from engine.simulation.checks.twin_invariants import invariant_28_clock
from engine.simulation.histories import HistoryName, compare_clocks, run_histories
from engine.simulation.memory import service, snapshots
from engine.simulation.scenario import Fault, Sabotage, random_scenario
from engine.simulation.simulate import simulate

HISTORIES = 200
SECONDS = 60.0
SHARDS = 4


def test_the_simulation_runs_the_shipped_planner_and_scheduler() -> None:
    assert service.prepare is shipped.prepare
    assert snapshots.plan_queues is consolidation.plan_queues
    assert consolidation.cut_queue is levels.cut_queue  # type: ignore[attr-defined]
    assert shipped.prepare.__module__ == "engine.schedule.prepare"
    assert levels.cut_queue.__module__ == "engine.lanes.profiles.plan.levels"
    assert snapshots.choose_queues.__module__ == "engine.schedule.queue_choice"


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SHARDS))
def test_every_invariant_holds_in_hundreds_of_histories(part: int) -> None:
    report = run_histories(HistoryName(seed=seed, seconds=SECONDS) for seed in range(part, HISTORIES, SHARDS))
    assert not report.failures, "\n".join(f"{f.message}: {f.name.command_line()}" for f in report.failures)
    assert report.histories == HISTORIES // SHARDS


@pytest.mark.slow
def test_the_histories_contain_what_they_are_meant_to_survive() -> None:
    report = run_histories(HistoryName(seed=seed) for seed in range(80))
    # Failing deletions are drawn object by object; isolation is a control task that runs all the time.
    planned = set(Fault) - {Fault.DELETION_FAILURE, Fault.ISOLATION}
    assert set(report.faults) == planned
    assert report.stale > 0, "no change set ever met a changed schedule"
    assert report.parked > 0
    assert report.runs > report.histories
    assert report.consolidations > 0, "no job ever had blocks of several shards"
    done = set(report.orders)
    assert done >= {"pause", "share", "give_back", "requeue", "split", "quarantine", "drop", "trim", "mask", "limits"}
    assert report.orders["rewrite"] > 0, "no block was ever rewritten for a delete request"


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", sorted(set(Sabotage) - {Sabotage.NONE}))
def test_a_safeguard_taken_away_is_noticed_within_a_thousand_histories(sabotage: Sabotage) -> None:
    name, number, message = _first_failure(sabotage)
    expected = {
        Sabotage.FENCE: {5, 6, 7},
        Sabotage.LEDGER: {1, 2, 5, 18},
        Sabotage.DELAY: {20},
        Sabotage.GRACE: {21},
        Sabotage.WATERMARK: {5},
    }
    assert number in expected[sabotage]
    with pytest.raises(InvariantBroken) as again:
        name.run()
    assert (again.value.number, str(again.value)) == (number, message)


def _first_failure(sabotage: Sabotage) -> tuple[HistoryName, int, str]:
    for name in (HistoryName(seed=seed, sabotage=sabotage) for seed in range(1000)):
        try:
            name.run()
        except InvariantBroken as error:
            return name, error.number, str(error)
    pytest.fail("nothing was noticed")


def test_a_failure_is_made_smaller_and_named_by_the_line_that_replays_it() -> None:
    [failure] = run_histories([HistoryName(seed=0, sabotage=Sabotage.DELAY)]).failures
    assert failure.faults < random_scenario(0).faults
    words = shlex.split(failure.name.command_line())
    assert words[:6] == ["manage.py", "simulate", "--seed", "0", "--profile", "faults"]
    assert words[6:8] == ["--sabotage", "delay"]


def test_the_same_seed_is_the_same_history() -> None:
    assert simulate(random_scenario(5), 5) == simulate(random_scenario(5), 5)
    assert simulate(random_scenario(5), 5) != simulate(random_scenario(5), 6)


@pytest.mark.parametrize("seed", range(12))
def test_polling_twice_as_often_ends_with_the_same_data_live(seed: int) -> None:
    scenario = replace(random_scenario(seed), faults=frozenset())
    fast = replace(scenario, fleet=replace(scenario.fleet, poll_s=scenario.fleet.poll_s / 2))
    slowly, quickly = simulate(scenario, seed), simulate(fast, seed)
    assert slowly.tally.segments > 0
    assert quickly.tally.polls > slowly.tally.polls
    assert slowly.live_items == quickly.live_items


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_one_worker_of_eight_slots_ends_like_eight_of_one(seed: int) -> None:
    scenario = replace(random_scenario(seed), faults=frozenset())
    one = replace(scenario, fleet=replace(scenario.fleet, workers=1, slots=8))
    many = replace(scenario, fleet=replace(scenario.fleet, workers=8, slots=1))
    ends = [simulate(fleet, seed) for fleet in (one, many)]
    assert ends[0].live_items == ends[1].live_items
    assert ends[0].parked_jobs == ends[1].parked_jobs == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_moving_the_clocks_of_workers_changes_nothing(seed: int) -> None:
    compare_clocks(HistoryName(seed=seed))


def test_a_worker_whose_clock_decides_something_is_noticed() -> None:
    with pytest.raises(InvariantBroken) as caught:
        invariant_28_clock({"jobs": 1, "blocks": 2}, {"jobs": 1, "blocks": 3})
    assert caught.value.number == 28


@pytest.mark.slow
def test_several_processes_give_the_result_of_one() -> None:
    names = [HistoryName(seed=seed) for seed in range(6)]
    one, two = run_histories(names), run_histories(names, processes=2)
    assert one == two
    bad = [HistoryName(seed=seed, sabotage=Sabotage.DELAY) for seed in range(4)]
    [failure] = run_histories(bad, processes=2).failures
    assert failure.name.command_line().startswith("manage.py simulate --seed 0 ")


def test_the_table_of_invariants_is_complete() -> None:
    rows = re.findall(r"^\| (\d+) \| ``(\w+)\.(\w+)``", invariants.__doc__ or "", re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, 29))
    for number, module, name in rows:
        check = getattr(importlib.import_module(f"engine.simulation.checks.{module}"), name)
        assert callable(check)
        assert name.startswith(f"invariant_{int(number):02}_")
