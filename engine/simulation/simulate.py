"""Run one history from a scenario and a seed, and return its outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from engine.lanes.profiles.plan.model import PlannedJob
from engine.schedule.model import ChangeSet
from engine.simulation.checks.quiescence import check_rest, check_sums
from engine.simulation.environment.fleet import WorkerFleet
from engine.simulation.environment.operations import Operations
from engine.simulation.environment.world import Tally, World
from engine.simulation.environment.writers import Writers
from engine.simulation.memory.queues import ready_ms
from engine.simulation.memory.rows import DatasetKey
from engine.simulation.memory.schedule import Command
from engine.simulation.scenario import START_MS, Scenario

DRAIN_S = 4 * 3600.0
"""Time after which a simulation that is not idle counts as stuck: hundreds of times the time of its work."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The backlog at one moment. ``wait_s`` is the waiting time of the first job that could be planned."""

    at_s: float
    queued_blocks: int
    live_jobs: int
    busy_slots: int
    wait_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome up to the end of arrivals.

    ``live_items`` is (count, digest) of the visible data by dataset. If the scenario drains, ``live_items``, ``steps``
    and ``parked_jobs`` are the values at rest. ``consolidations`` counts jobs with sources of several shards.
    """

    tally: Tally
    commands: int
    steps: int
    utilisation: float
    parked_jobs: int
    live_items: dict[DatasetKey, tuple[int, int]]
    samples: tuple[Sample, ...]
    orders: dict[str, int] = field(default_factory=dict)
    consolidations: int = 0


class Simulation:
    """A simulated environment with its writers, workers and operators."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.world = World(scenario, seed)
        self.writers = Writers(self.world, seed)
        self.fleet = WorkerFleet(self.world, self.writers)
        self.operations = Operations(self.world)
        self.samples: list[Sample] = []
        self.writers.start()
        self.fleet.start()
        self.operations.start()
        if scenario.sample_s:
            self._take_sample(None)

    def run(self) -> Outcome:
        """Run to the end, and until idle if the scenario drains."""
        self.run_for(self.scenario.duration_s)
        outcome = self.outcome()
        if not self.scenario.drains:
            return outcome
        self._drain()
        world = self.world
        at_rest = dict(world.audit.live)
        return replace(outcome, live_items=at_rest, parked_jobs=world.schedule.parked_count, steps=world.audit.steps)

    def run_for(self, seconds: float) -> None:
        """Run for ``seconds`` of virtual time."""
        self.world.run_until(self.world.now_ms + round(seconds * 1000))

    def outcome(self) -> Outcome:
        """Return the outcome so far."""
        world, fleet = self.world, self.scenario.fleet
        busy = [sample.busy_slots for sample in self.samples]
        return Outcome(
            tally=world.tally,
            commands=world.schedule.last_index,
            steps=world.audit.steps,
            utilisation=sum(busy) / (max(1, len(busy)) * fleet.workers * fleet.slots),
            parked_jobs=world.schedule.parked_count,
            live_items=dict(world.audit.live),
            samples=tuple(self.samples),
            orders=Counter(command.kind for command in world.schedule.log),
            consolidations=sum(count_consolidations(command) for command in world.schedule.log),
        )

    def _drain(self) -> None:
        """Stop arrivals and faults, run until idle, and check the result."""
        world = self.world
        world.is_draining = True
        if self.scenario.keeps_history:
            check_sums(world.schedule)
        self.operations.settle()
        is_quiet = world.run_until(world.now_ms + round(DRAIN_S * 1000), until=self._is_quiet)
        if self.scenario.keeps_history:
            check_rest(world.audit, self.scenario, is_quiet=is_quiet)

    def _is_quiet(self) -> bool:
        schedule = self.world.schedule
        is_late_add_over = self.world.now_ms > self.world.last_arrival_ms
        return is_late_add_over and schedule.live_job_count == 0 and schedule.queues.block_count == 0

    def _take_sample(self, _: object) -> None:
        world = self.world
        now_ms = world.schedule.time().now_ms
        ready = [moment for queue in world.schedule.queues.by_id.values() if (moment := ready_ms(queue)) is not None]
        self.samples.append(
            Sample(
                at_s=(world.now_ms - START_MS) / 1000,
                queued_blocks=world.schedule.queues.block_count,
                live_jobs=world.schedule.live_job_count,
                busy_slots=sum(worker.running for worker in self.fleet.workers),
                wait_s=max(0, now_ms - min(ready, default=now_ms)) / 1000,
            )
        )
        world.after(self.scenario.sample_s, self._take_sample)


def count_consolidations(command: Command) -> int:
    """Return the number of jobs with sources of several shards that a command created."""
    if command.kind != "update_plan":
        return 0
    change_set: ChangeSet = command.arguments[0]
    plans = [creation.plan for creation in change_set.created]
    return sum(isinstance(plan, PlannedJob) and bool(plan.source_shards()) for plan in plans)


def simulate(scenario: Scenario, seed: int) -> Outcome:
    """Run one history. Raises InvariantBroken."""
    return Simulation(scenario, seed).run()
