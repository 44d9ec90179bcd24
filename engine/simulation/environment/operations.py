"""Events of the simulated service besides polls: deletions, operator actions, outages, clock jumps, restarts."""

from __future__ import annotations

from dataclasses import replace

from engine.simulation.checks.quiescence import check_sums
from engine.simulation.checks.twin_invariants import invariant_23_restart_equivalence
from engine.simulation.environment.operators import Operators
from engine.simulation.environment.world import World
from engine.simulation.memory.actions import set_paused
from engine.simulation.memory.rows import LIVE_BLOCKS, Tombstone
from engine.simulation.scenario import Fault

SWEEP_S = 10.0
"""Interval of the task that deletes objects."""
SWEEP_MAX = 1000
CONFIRM_S = 1.0
RETRY_S = 15.0
FAILURES_AT_REST = 2
TROUBLE_S = 6.0
"""Mean time between two faults of the service."""


class Operations:
    """Deletes objects and injects faults."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.operators = Operators(world)
        self._actions = {
            Fault.OUTAGE: self._outage,
            Fault.CLOCK_JUMP: self._clock_jump,
            Fault.OBJECT_LOSS: self._object_loss,
            Fault.LIMIT_CHANGE: self._limit_change,
            Fault.RESTART: self._restart,
            **self.operators.actions,
        }
        self._faults = [fault for fault in self._actions if fault in world.scenario.faults]

    def start(self) -> None:
        """Schedule the first sweep and the first fault."""
        self.world.after(SWEEP_S, self._sweep)
        self.operators.start()
        if self._faults and self.world.scenario.trouble_rate:
            self.world.after(self.world.random.expovariate(1 / TROUBLE_S), self._inject)

    def settle(self) -> None:
        """Lift all pauses, and bound the retries of damaged blocks if they are unlimited."""
        world, schedule = self.world, self.world.schedule
        world.run_action(lambda: set_paused(schedule, ()))
        limits = replace(
            schedule.limits,
            failures_max=schedule.limits.failures_max or FAILURES_AT_REST,
        )
        if limits != schedule.limits:
            world.run_action(lambda: schedule.change_limits(limits))

    # Deletion: dispatched, executed, confirmed

    def _sweep(self, _: object) -> None:
        self.world.after(SWEEP_S, self._sweep)
        if self.world.is_away():
            return
        for tombstone in self.world.schedule.dispatch_deletions(SWEEP_MAX):
            self._delete(tombstone)

    def _delete(self, tombstone: Tombstone) -> None:
        world = self.world
        fails = Fault.DELETION_FAILURE in world.scenario.faults and not world.is_draining
        fate = world.random.random() if fails else 1.0
        if fate < 0.2:  # the store returns an error
            world.after(RETRY_S, self._order_again, tombstone.ulid)
            return
        world.delete_object(tombstone.ulid)
        if fate < 0.4:  # the task dies before the confirmation
            world.after(RETRY_S, self._order_again, tombstone.ulid)
        elif fails:
            world.after(CONFIRM_S, self._confirm, tombstone.ulid)
        else:
            self._confirm(tombstone.ulid)

    def _order_again(self, ulid: str) -> None:
        self.world.schedule.retry_deletion(ulid)

    def _confirm(self, ulid: str) -> None:
        self.world.schedule.confirm_deletion(ulid)
        self.world.check()

    # Troubles

    def _inject(self, _: object) -> None:
        world = self.world
        if world.is_draining:
            return
        world.after(world.random.expovariate(1 / TROUBLE_S), self._inject)
        fault = world.random.choice(self._faults)
        world.tally.faults[fault] = world.tally.faults.get(fault, 0) + 1
        self._actions[fault]()

    def _outage(self) -> None:
        lease_ms = self.world.schedule.limits.lease_ms
        self.world.away_until_ms = self.world.now_ms + round(lease_ms * self.world.random.choice([0.3, 1.5, 4.0]))

    def _clock_jump(self) -> None:
        """Move the clock of the database forward or back."""
        self.world.clock_error_ms += self.world.random.choice([-86_400_000, -60_000, -1_000, 5_000, 86_400_000])

    def _object_loss(self) -> None:
        live = [ulid for ulid, block in self.world.schedule.blocks.items() if block.state in LIVE_BLOCKS]
        if live:
            ulid = self.world.random.choice(live)
            self.world.objects.discard(ulid)
            self.world.lost.add(ulid)

    def _limit_change(self) -> None:
        draw, schedule = self.world.random, self.world.schedule
        limits = replace(
            schedule.limits,
            failures_max=draw.choice([0, 1, 2, 3]),
            queue_max=draw.choice([0, 2, 5, 50]),
            lease_ms=draw.choice([10_000, 15_000, 30_000]),
        )
        self.world.run_action(lambda: schedule.change_limits(limits))

    def _restart(self) -> None:
        """Check that state rebuilt from the rows equals the incremental state and gives the same decisions."""
        check_sums(self.world.schedule)
        invariant_23_restart_equivalence(self.world.schedule, self.world.random)
