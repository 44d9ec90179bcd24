"""Each invariant notices when it does not hold: a healthy world is damaged in one place, and its number is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.schedule.model import JobState
from engine.simulation.checks import quiescence
from engine.simulation.checks.audit import InvariantBroken
from engine.simulation.memory.rows import BlockState, MemoryJob
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.service import PollFact
from engine.simulation.memory.snapshots import PollRequest
from engine.simulation.simulate import Simulation
from tests.engine.simulation.worlds import POLICY, segments, success, world_with_two_jobs

WORKER = "another"


@pytest.fixture
def simulation() -> Simulation:
    """Return a healthy world without workers of its own: two jobs run, and two more can be planned."""
    return world_with_two_jobs(WORKER, segment_count=8)


def _job(schedule: MemorySchedule) -> MemoryJob:
    return next(job for job in schedule.jobs.values() if job.state is JobState.LEASED)


def _touch(change: Callable[[MemorySchedule, MemoryJob], None]) -> Callable[[Simulation], None]:
    """Change a leased job behind everybody's back, and let a step say that it touched it."""

    def damage(simulation: Simulation) -> None:
        schedule = simulation.world.schedule
        job = _job(schedule)
        change(schedule, job)
        schedule.touched_jobs.append(job)
        schedule.touched_blocks.extend(job.sources)
        simulation.world.check()

    return damage


def _tell(change: Callable[[PollFact], None]) -> Callable[[Simulation], None]:
    """Poll as always, but let the poll say that it did something else."""

    def damage(simulation: Simulation) -> None:
        service, observe = simulation.world.service, simulation.world.service.observe

        def changed(fact: PollFact) -> None:
            change(fact)
            observe(fact)

        service.observe = changed
        service.poll(PollRequest(WORKER, 1, (success(_job(simulation.world.schedule)),)))

    return damage


def _two_owners(schedule: MemorySchedule, job: MemoryJob) -> None:
    other = next(found for found in schedule.jobs.values() if found is not job)
    other.sources = (*other.sources, job.sources[0])
    job.sources[0].owner = other
    job.state = JobState.WAITING


def _silent_replacement(schedule: MemorySchedule, job: MemoryJob) -> None:
    for block in job.sources:
        block.state, block.owner = BlockState.REPLACED, None


def _old_token(fact: PollFact) -> None:
    fact.request = replace(
        fact.request, reports=tuple(replace(told, token=told.token - 1) for told in fact.request.reports)
    )


def _other_worker(fact: PollFact) -> None:
    fact.request = replace(fact.request, worker="somebody else")


def _too_much(fact: PollFact) -> None:
    fact.request = replace(fact.request, capacity=0)


def _impure(fact: PollFact) -> None:
    fact.version_prepared += 1


def _shorten(schedule: MemorySchedule, job: MemoryJob) -> None:
    job.lease_expires_ms -= 1


def _take_over(schedule: MemorySchedule, job: MemoryJob) -> None:
    job.token += 100


def _fail_twice(schedule: MemorySchedule, job: MemoryJob) -> None:
    job.failures += 2


def _overcount(schedule: MemorySchedule, job: MemoryJob) -> None:
    schedule.live_job_count += 1
    job.state = JobState.WAITING


def _park_without_blocks(schedule: MemorySchedule, job: MemoryJob) -> None:
    job.state, job.parked_reason = JobState.PARKED, "made up"
    job.sources[0].owner, job.sources[0].state = None, BlockState.FINAL
    schedule.live_job_count -= 1
    schedule.parked_count += 1
    schedule.touched_blocks.clear()


@pytest.mark.parametrize(
    ("numbers", "damage"),
    [
        pytest.param({1}, _touch(_two_owners), id="a block of two jobs"),
        pytest.param({2}, _touch(_silent_replacement), id="a replacement without results"),
        pytest.param({6}, _tell(_old_token), id="a report under an old token counts"),
        pytest.param({7}, _tell(_other_worker), id="a report of another worker counts"),
        pytest.param({8}, _touch(_shorten), id="a lease is shortened"),
        pytest.param({8}, _touch(_take_over), id="a running job is taken over"),
        pytest.param({10}, _touch(_fail_twice), id="two failures at once"),
        pytest.param({11}, _touch(_overcount), id="live jobs are miscounted"),
        pytest.param({1, 13}, _touch(_park_without_blocks), id="a parked job loses a block"),
        pytest.param({17}, _tell(_impure), id="preparing changes something"),
        pytest.param({24}, _tell(_too_much), id="more jobs than capacity"),
    ],
)
def test_damage_is_noticed_under_its_number(
    simulation: Simulation, numbers: set[int], damage: Callable[[Simulation], None]
) -> None:
    with pytest.raises(InvariantBroken) as caught:
        damage(simulation)
    assert caught.value.number in numbers


def test_a_healthy_step_is_let_through(simulation: Simulation) -> None:
    _tell(lambda fact: None)(simulation)
    assert simulation.world.schedule.counters[0].completed == 1


def test_lost_data_is_noticed_in_the_step_that_loses_it(simulation: Simulation) -> None:
    schedule = simulation.world.schedule
    insert = schedule._insert
    schedule._insert = lambda block, now_ms, index: insert(replace(block, shares=()), now_ms, index)  # type: ignore[method-assign]
    with pytest.raises(InvariantBroken) as caught:
        simulation.world.service.poll(PollRequest(WORKER, 0, (success(_job(schedule)),)))
    assert caught.value.number == 5


def test_a_second_application_that_works_is_noticed(simulation: Simulation) -> None:
    schedule = simulation.world.schedule
    schedule._check = lambda change_set, replacements: None  # type: ignore[method-assign]
    job = _job(schedule)
    told = success(job)
    job.state = JobState.LEASED
    with pytest.raises((InvariantBroken, KeyError)):
        simulation.world.service.poll(PollRequest(WORKER, 0, (told,)))


def test_a_job_of_far_apart_or_too_many_blocks_is_noticed(simulation: Simulation) -> None:
    schedule = simulation.world.schedule
    schedule.policies = {level: replace(POLICY, blocks_max=1) for level in range(3)}
    with pytest.raises(InvariantBroken) as caught:
        simulation.world.service.poll(PollRequest(WORKER, 1))
    assert caught.value.number == 14


def test_an_accepted_id_that_comes_again_is_noticed(simulation: Simulation) -> None:
    schedule = simulation.world.schedule
    ulid = _job(schedule).sources[0].ulid
    del schedule.ledger[ulid]
    with pytest.raises(InvariantBroken) as caught:
        simulation.world.add([block for block in segments(8) if block.ulid == ulid])
    assert caught.value.number in {1, 2, 18}


def test_a_missing_tombstone_and_an_early_deletion_are_noticed(simulation: Simulation) -> None:
    world = simulation.world
    job = _job(world.schedule)
    world.service.poll(PollRequest(WORKER, 0, (success(job),)))
    ulid = job.sources[0].ulid
    world.objects.add(ulid)
    with pytest.raises(InvariantBroken) as early:
        world.delete_object(ulid)
    assert early.value.number == 20
    live = next(block.ulid for block in world.schedule.blocks.values() if block.state is BlockState.QUEUED)
    world.objects.add(live)
    with pytest.raises(InvariantBroken) as wrong:
        world.delete_object(live)
    assert wrong.value.number == 19
    del world.schedule.tombstones[ulid]
    world.schedule.touched_blocks.append(job.sources[0])
    with pytest.raises(InvariantBroken) as missing:
        world.check()
    assert missing.value.number == 19


def test_counters_that_do_not_add_up_are_noticed(simulation: Simulation) -> None:
    world = simulation.world
    world.schedule.counters[0].created += 1
    with pytest.raises(InvariantBroken) as caught:
        world.service.poll(PollRequest(WORKER, 1))
    assert caught.value.number == 26


@pytest.mark.parametrize("number", [3, 4, 12, 15, 16, 23])
def test_a_world_at_rest_that_is_damaged_is_noticed(simulation: Simulation, number: int) -> None:
    world, schedule = simulation.world, simulation.world.schedule
    world.service.poll(PollRequest(WORKER, 0, (success(_job(schedule)),)))
    quiescence.check_rest(world.audit, simulation.scenario, is_quiet=True)
    result = next(block for block in schedule.blocks.values() if block.level == 1)
    is_quiet = number not in {12, 15}
    if number == 3:
        result.sources = result.sources[:1] * 2
    elif number == 4:
        world.audit.ever["01M00000000000000000000000"] = 1
    elif number == 12:
        schedule.limits = replace(schedule.limits, queue_max=1)
    elif number == 16:
        schedule.log.pop()
    elif number == 23:
        schedule.queues.block_count += 1
    with pytest.raises(InvariantBroken) as caught:
        quiescence.check_rest(world.audit, simulation.scenario, is_quiet=is_quiet)
    assert caught.value.number == number
