"""The checks that look at a whole step at once say what the invariants one by one say, in worlds that hold and in
worlds that do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.schedule.model import JobState, RenewLease
from engine.simulation.checks import invariants
from engine.simulation.checks.audit import InvariantBroken
from engine.simulation.environment import world
from engine.simulation.histories import HistoryName
from engine.simulation.memory.rows import MemoryJob
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.service import MemoryService, PollFact
from engine.simulation.memory.snapshots import PollRequest
from engine.simulation.scenario import Sabotage
from engine.simulation.simulate import Outcome, Simulation
from tests.engine.simulation.worlds import running, world_with_two_jobs

WORKER = "node"
HISTORIES = {Sabotage.NONE: 10, Sabotage.FENCE: 16, Sabotage.LEDGER: 4, Sabotage.DELAY: 4}


def _end(name: HistoryName) -> Outcome | tuple[int, str]:
    try:
        return name.run()
    except InvariantBroken as broken:
        return broken.number, broken.broken


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", HISTORIES)
def test_histories_end_the_same_with_the_invariants_one_by_one(
    sabotage: Sabotage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [HistoryName(seed=seed, sabotage=sabotage) for seed in range(1, 1 + HISTORIES[sabotage])]
    quick = [_end(name) for name in names]
    monkeypatch.setattr(world, "renewals_hold", lambda *_: False)
    monkeypatch.setattr(invariants, "_blocks_hold", lambda *_: False)
    assert [_end(name) for name in names] == quick
    assert any(isinstance(end, tuple) for end in quick) == (sabotage is not Sabotage.NONE)


@pytest.fixture
def simulation() -> Simulation:
    """Return a world in which one worker holds two jobs."""
    simulation = world_with_two_jobs(WORKER, segment_count=4)
    simulation.world.now_ms += 5000
    simulation.world.schedule.clock.wall_ms += 5000
    return simulation


def _renewal(simulation: Simulation) -> tuple[PollFact, list[MemoryJob]]:
    """Renew both leases; return what the poll did before anybody has checked it."""
    schedule, seen = simulation.world.schedule, list[PollFact]()
    told = tuple(running(job) for job in schedule.jobs.values())
    MemoryService(schedule, seen.append).poll(PollRequest(WORKER, 0, told))
    return seen[0], list(schedule.jobs.values())


def _one_by_one(simulation: Simulation, fact: PollFact, jobs: list[MemoryJob]) -> bool:
    try:
        invariants.check_step(simulation.world.audit, invariants.Step((), jobs, fact))
    except InvariantBroken:
        return False
    return True


Damage = Callable[[PollFact, MemorySchedule, MemoryJob], None]


def _other_worker(fact: PollFact, _: MemorySchedule, __: MemoryJob) -> None:
    fact.request = replace(fact.request, worker="somebody else")


def _other_token(fact: PollFact, _: MemorySchedule, __: MemoryJob) -> None:
    first, second = fact.request.reports
    fact.request = replace(fact.request, reports=(first, replace(second, token=second.token - 1)))


def _other_job(fact: PollFact, _: MemorySchedule, __: MemoryJob) -> None:
    first, second = fact.renewed
    fact.renewed = [first, RenewLease(job=replace(second.job, id=99), progress=None)]


def _impure(fact: PollFact, _: MemorySchedule, __: MemoryJob) -> None:
    fact.version_prepared += 1


def _shorter(_: PollFact, __: MemorySchedule, job: MemoryJob) -> None:
    job.lease_expires_ms -= 5001


def _failed(_: PollFact, __: MemorySchedule, job: MemoryJob) -> None:
    job.failures += 1


def _given_away(_: PollFact, __: MemorySchedule, job: MemoryJob) -> None:
    job.token += 1


def _not_leased(_: PollFact, schedule: MemorySchedule, job: MemoryJob) -> None:
    job.state = JobState.DONE
    schedule.live_job_count -= 2


@pytest.mark.parametrize(
    "damage",
    [_other_worker, _other_token, _other_job, _impure, _shorter, _failed, _given_away, _not_leased],
)
def test_a_renewal_that_is_not_as_it_should_be_is_left_to_the_invariants_which_refuse_it(
    simulation: Simulation, damage: Damage
) -> None:
    fact, jobs = _renewal(simulation)
    damage(fact, simulation.world.schedule, jobs[1])
    assert not invariants.renewals_hold(simulation.world.audit, fact, jobs)
    assert not _one_by_one(simulation, fact, jobs)


def test_a_renewal_that_holds_is_written_down_as_the_invariants_do(simulation: Simulation) -> None:
    fact, jobs = _renewal(simulation)
    audit = simulation.world.audit
    before = audit.steps
    assert invariants.renewals_hold(audit, fact, jobs)
    quick = {id_: shadow.lease_expires_ms for id_, shadow in audit.jobs.items()}
    assert audit.steps == before + 1
    for shadow in audit.jobs.values():
        shadow.lease_expires_ms -= 5000
    assert _one_by_one(simulation, fact, jobs)
    assert quick == {id_: shadow.lease_expires_ms for id_, shadow in audit.jobs.items()}
    assert set(quick.values()) == {job.lease_expires_ms for job in jobs}
