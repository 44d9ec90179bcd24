"""A simulated fleet whose polls lose their answers: jobs come back in time, and hardly any failure is counted."""

from __future__ import annotations

import pytest

from engine.simulation.environment.worker import Worker
from engine.simulation.scenario import Fault, Fleet, Scenario, Workload
from engine.simulation.simulate import Simulation

SCENARIO = Scenario(
    workload=Workload(segments_per_s=10.0),
    fleet=Fleet(workers=4, poll_s=2.0),
    duration_s=150.0,
    drains=False,
    keeps_history=False,
    faults=frozenset({Fault.LOST_RESPONSE}),
    trouble_rate=0.2,
)


def charges(seed: int) -> tuple[int, int]:
    """Run a history; return how many answers were lost, and how many runs were charged as failures."""
    simulation = Simulation(SCENARIO, seed)
    observe, charged = simulation.world.service.observe, 0

    def count(fact) -> None:
        nonlocal charged
        if fact.applied is not None:
            charged += sum(given.failures > given.job.failures for given in fact.change_set.assigned)
        observe(fact)

    simulation.world.service.observe = count
    return simulation.run().tally.faults[Fault.LOST_RESPONSE], charged


def test_lost_answers_count_no_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    lost, charged = charges(1)
    assert lost > 20
    assert charged == 0
    monkeypatch.setattr(Worker, "lose", lambda worker: None)
    assert charges(1)[1] > 0, "workers that do not say what they last_serial pay for it"
