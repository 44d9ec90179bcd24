"""A simulated worker keeps what it would say until something changes: it must never say what is no longer so."""

from __future__ import annotations

import pytest

from engine.simulation.environment.worker import Worker
from engine.simulation.memory.snapshots import PollRequest
from engine.simulation.scenario import random_scenario
from engine.simulation.simulate import Simulation


def _said_anew(worker: Worker) -> PollRequest:
    told = tuple(run.report for run in worker.runs.values())
    return PollRequest(
        worker.name, worker.slots - worker.running, told, worker.last_serial if worker.unsure_polls else 0
    )


@pytest.mark.parametrize("seed", [2, 3, 5, 6, 7, 9, 10, 11])
def test_the_poll_request_of_a_worker_is_up_to_date_after_every_event(seed: int) -> None:
    simulation = Simulation(random_scenario(seed), seed)
    world, workers, said = simulation.world, simulation.fleet.workers, set[PollRequest]()

    def is_wrong() -> bool:
        for worker in workers:
            assert worker.running == sum(not run.is_over for run in worker.runs.values())
            request = worker.request()
            assert request == _said_anew(worker)
            said.add(request)
        return False

    world.run_until(world.now_ms + round(simulation.scenario.duration_s * 1000), until=is_wrong)
    assert len(said) > len(workers), "nothing ever ran"
