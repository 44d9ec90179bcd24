"""Small worlds for tests: a schedule in memory with blocks in it, and a worker that polls it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.lanes.profiles.plan.model import LevelPolicy
from engine.schedule.model import ScheduleLimits
from engine.simulation.environment.worker import Run
from engine.simulation.memory.command_clock import CommandClock
from engine.simulation.memory.ids import item_digest, segment_id
from engine.simulation.memory.results import merge
from engine.simulation.memory.rows import MemoryJob, NewBlock, Share
from engine.simulation.memory.schedule import MemorySchedule
from engine.simulation.memory.service import MemoryService, PollFact
from engine.simulation.memory.snapshots import PollRequest, WorkerReport
from engine.simulation.scenario import START_MS, Fleet, Scenario, Workload
from engine.simulation.simulate import Simulation

POLICY = LevelPolicy(blocks_max=2, age_ms=20_000, spread_ms=3_600_000)


def memory_schedule(policy: LevelPolicy = POLICY, **limits: int) -> MemorySchedule:
    """Return an empty schedule whose jobs have two blocks."""
    return MemorySchedule(
        limits=ScheduleLimits(**limits),
        policies=dict.fromkeys(range(3), policy),
        cleanup_delay_ms=30_000,
        clock=CommandClock(START_MS),
    )


def world_with_two_jobs(worker: str, *, segment_count: int) -> Simulation:
    """Return a healthy world without workers of its own, in which this one holds two jobs; each took two segments."""
    scenario = Scenario(
        workload=Workload(segments_per_s=0),
        fleet=Fleet(workers=0),
        duration_s=60,
        policies=dict.fromkeys(range(3), POLICY),
    )
    simulation = Simulation(scenario, 1)
    simulation.world.add(segments(segment_count))
    simulation.world.service.poll(PollRequest(worker, 2))
    return simulation


def segments(count: int, *, first: int = 0, shard: int = 1, tenants: Iterable[str] = ("acme",)) -> list[NewBlock]:
    """Return fresh segments created at the start."""
    names = list(tenants)
    ids = [segment_id(START_MS, number) for number in range(first, first + count)]
    return [
        NewBlock(ulid, "", shard, 0, 1000, START_MS, tuple(Share(name, 1, item_digest(ulid, name)) for name in names))
        for ulid in ids
    ]


def service(schedule: MemorySchedule, observe: Callable[[PollFact], None] = lambda fact: None) -> MemoryService:
    return MemoryService(schedule, observe)


def poll(
    schedule: MemorySchedule, *told: WorkerReport, capacity: int = 1, worker: str = "node"
) -> tuple[MemoryJob, ...]:
    """Poll once; return what was assigned."""
    return service(schedule).poll(PollRequest(worker, capacity, told))[1]


def success(job: MemoryJob) -> WorkerReport:
    """Return the report of a finished merge."""
    run = Run.start(job)
    run.succeed(merge(run.job, run.sources, run.token))
    return run.report


def running(job: MemoryJob) -> WorkerReport:
    return Run.start(job).report
