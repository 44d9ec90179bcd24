"""Answers polls in memory as the web application's service does: read, let the engine decide, apply, else begin again.

``prepare`` here is the shipped function; a test holds that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.schedule.model import ChangeSet, RenewLease
from engine.schedule.prepare import prepare
from engine.simulation.memory_schedule import Applied, MemorySchedule, StaleSnapshot
from engine.simulation.rows import MemoryJob
from engine.simulation.snapshots import PollOrder, PollView, read_poll

ATTEMPTS_MAX = 8
"""Prepares per poll; each failed one means that another poll got through."""


@dataclass(slots=True)
class PollFact:
    """What one try of a poll did, for those who check it."""

    order: PollOrder
    view: PollView
    change_set: ChangeSet
    version_before: int
    version_prepared: int
    renewed: Sequence[RenewLease] = ()
    applied: Applied | None = None
    is_stale: bool = False


@dataclass(slots=True)
class MemoryService:
    """``between`` runs after each prepare: what others do before it is applied. ``observe`` sees every try."""

    schedule: MemorySchedule
    observe: Callable[[PollFact], None]
    between: Callable[[], None] | None = None
    ignores_tokens: bool = False

    def poll(self, order: PollOrder) -> tuple[Sequence[RenewLease], Sequence[MemoryJob]]:
        """Return the leases that the worker still holds, and the jobs it got. None if the service was too busy."""
        for _ in range(ATTEMPTS_MAX):
            fact = self._try(order)
            self.observe(fact)
            if not fact.is_stale:
                return fact.renewed, fact.applied.assigned if fact.applied else ()
        return (), ()

    def _try(self, order: PollOrder) -> PollFact:
        schedule = self.schedule
        view = read_poll(schedule, order, ignores_tokens=self.ignores_tokens)
        before = schedule.version
        snapshot = view.snapshot
        change_set = prepare(snapshot)
        prepared = schedule.version
        if self.between is not None:
            self.between()
        renewed: Sequence[RenewLease] = ()
        if change_set.renewed:
            expires_ms = snapshot.now_ms + snapshot.limits.lease_ms
            renewed = schedule.renew(change_set.renewed, order.worker, expires_ms)
        applied, is_stale = None, False
        if change_set.changes_plan():
            try:
                applied = schedule.apply(change_set, order.worker, view.replacements)
            except StaleSnapshot:
                is_stale = True
        elif view.waits_for_time:
            schedule.advance_clock()
        return PollFact(order, view, change_set, before, prepared, renewed, applied, is_stale)
