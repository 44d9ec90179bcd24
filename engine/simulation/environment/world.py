"""The simulated environment: one queue of events in virtual time, determined by a seed.

Events are arrivals of segments, polls, ends of runs, deletions and faults. After each event the invariants are checked
for the rows that it touched. Equal scenario and seed give equal events.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.lanes.profiles.jobs import DeleteMask
from engine.lanes.profiles.plan.retention import RetentionPolicy, RetentionSlice
from engine.simulation.checks.audit import ActionFact, AddFact, Audit, Step
from engine.simulation.checks.invariants import check_step, invariant_20_deletion_delay, renewals_hold
from engine.simulation.checks.removal_invariants import rows_of_others
from engine.simulation.environment.event_queue import EventQueue, Handler
from engine.simulation.memory.command_clock import CommandClock
from engine.simulation.memory.rows import NewBlock
from engine.simulation.memory.schedule import AddOutcome, MemorySchedule
from engine.simulation.memory.service import MemoryService, PollFact
from engine.simulation.scenario import START_MS, Sabotage, Scenario

Answer = TypeVar("Answer")
Row = TypeVar("Row")


@dataclass(slots=True)
class Tally:
    """Counts of events; ``busy_ms`` is the total run time of slots."""

    events: int = 0
    segments: int = 0
    polls: int = 0
    runs: int = 0
    busy_ms: int = 0
    stale: int = 0
    faults: dict[str, int] = field(default_factory=dict)


class World:
    """Holds the schedule, its service, the objects, the clock and the pending events."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.random = random.Random(f"world {seed}")
        self.now_ms = START_MS
        self.clock_error_ms = 0
        self.away_until_ms = 0
        self.last_arrival_ms = 0
        self.is_draining = False
        self.tally = Tally()
        self.objects: set[str] = set()
        self.lost: set[str] = set()
        self.schedule = MemorySchedule(
            limits=scenario.limits,
            policies=scenario.policies,
            cleanup_delay_ms=0 if scenario.sabotage is Sabotage.DELAY else round(scenario.cleanup_delay_s * 1000),
            clock=CommandClock(START_MS),
            keeps_log=scenario.keeps_history,
            refuses_known=scenario.sabotage is not Sabotage.LEDGER,
            trusts_late_results=scenario.sabotage is Sabotage.WATERMARK,
        )
        self.audit = Audit(self.schedule, cleanup_delay_ms=round(scenario.cleanup_delay_s * 1000))
        self.service = MemoryService(self.schedule, self._seen_poll, ignores_tokens=scenario.sabotage is Sabotage.FENCE)
        self.events = EventQueue()
        self.watch: Callable[[PollFact], None] | None = None

    def at(self, when_ms: int, handler: Handler, argument: Any = None) -> None:
        """Schedule an event at a time; events of equal time keep their order."""
        self.events.put(when_ms, handler, argument)

    def after(self, seconds: float, handler: Handler, argument: Any = None) -> None:
        """Schedule an event after ``seconds``."""
        self.at(self.now_ms + round(seconds * 1000), handler, argument)

    def run_until(self, end_ms: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Process all events up to ``end_ms``; stop early and return True once ``until`` holds."""
        pop, clock, tally = heapq.heappop, self.schedule.clock, self.tally
        while events := self.events.open_page(end_ms):
            while events and events[0][0] <= end_ms:
                now_ms, _, handler, argument = pop(events)
                self.now_ms = now_ms
                clock.wall_ms = now_ms + self.clock_error_ms
                tally.events += 1
                handler(argument)
                if until is not None and until():
                    return True
            if events:
                break
        self.now_ms = end_ms
        clock.wall_ms = end_ms + self.clock_error_ms
        return False

    def is_away(self) -> bool:
        """Return whether the service is unavailable."""
        return self.now_ms < self.away_until_ms

    def add(self, blocks: Sequence[NewBlock]) -> AddOutcome:
        """Register blocks and check the step."""
        schedule = self.schedule
        before = schedule.version
        outcome = schedule.add_blocks(blocks)
        step = Step(schedule.touched_blocks, (), None, AddFact(blocks, outcome, before, schedule.version))
        check_step(self.audit, step)
        schedule.touched_blocks.clear()
        return outcome

    def delete_object(self, ulid: str) -> None:
        """Delete an object from the store; idempotent."""
        if ulid in self.objects:
            invariant_20_deletion_delay(self.audit, ulid)
            self.objects.discard(ulid)

    def check(self, action: ActionFact | None = None) -> None:
        """Check the changes since the last check that were not made by writers or workers."""
        schedule = self.schedule
        jobs, blocks = _once_each(schedule.touched_jobs), _once_each(schedule.touched_blocks)
        check_step(self.audit, Step(blocks, jobs, action=action, removals=schedule.removals))
        schedule.touched_blocks.clear()
        schedule.touched_jobs.clear()
        schedule.removals.clear()

    def run_action(
        self,
        action: Callable[[], Answer],
        *,
        tenant: str | None = None,
        part: RetentionSlice | None = None,
        policy: RetentionPolicy | None = None,
    ) -> Answer:
        """Run an action and check the step; ``tenant`` is the only tenant whose rows it may change."""
        before = rows_of_others(self.schedule, tenant) if tenant is not None else None
        at_ms = self.schedule.clock.wall_ms
        answer = action()
        after = rows_of_others(self.schedule, tenant) if tenant is not None else None
        mask = answer if isinstance(answer, DeleteMask) else None
        self.check(
            ActionFact(tenant=tenant, before=before, after=after, part=part, policy=policy, at_ms=at_ms, mask=mask)
        )
        return answer

    def _seen_poll(self, fact: PollFact) -> None:
        schedule = self.schedule
        self.tally.polls += 1
        self.tally.stale += fact.is_stale
        if self.watch is not None:
            self.watch(fact)
        jobs = _once_each(schedule.touched_jobs)
        blocks = schedule.touched_blocks
        if fact.applied is not None or blocks or not renewals_hold(self.audit, fact, jobs):
            check_step(self.audit, Step(blocks, jobs, fact))
            blocks.clear()
        schedule.touched_jobs.clear()


def _once_each(rows: list[Row]) -> list[Row]:
    """Return rows without repetitions."""
    return list(dict.fromkeys(rows)) if len(rows) > 1 else rows
