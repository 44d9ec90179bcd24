"""Answer polls in memory as the web application does: read, prepare, apply, and retry on a conflict.

``prepare`` is the shipped function; a test asserts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.schedule.model import ChangeSet, RenewLease
from engine.schedule.prepare import prepare
from engine.simulation.memory.rows import MemoryJob
from engine.simulation.memory.schedule import Applied, MemorySchedule, StaleSnapshot
from engine.simulation.memory.snapshots import PollRequest, PollView, read_poll

ATTEMPTS_MAX = 8
"""Maximum attempts per poll; each failed attempt means that another command was applied."""


@dataclass(slots=True)
class PollFact:
    """The data of one attempt of a poll, for the checks."""

    request: PollRequest
    view: PollView
    change_set: ChangeSet
    version_before: int
    version_prepared: int
    renewed: Sequence[RenewLease] = ()
    applied: Applied | None = None
    is_stale: bool = False


@dataclass(slots=True)
class MemoryService:
    """The service. ``between`` runs between prepare and apply; ``observe`` receives every attempt."""

    schedule: MemorySchedule
    observe: Callable[[PollFact], None]
    between: Callable[[], None] | None = None
    ignores_tokens: bool = False

    def poll(self, request: PollRequest) -> tuple[Sequence[RenewLease], Sequence[MemoryJob]]:
        """Return the renewed leases and the assigned jobs."""
        for _ in range(ATTEMPTS_MAX):
            fact = self._try(request)
            self.observe(fact)
            if not fact.is_stale:
                return fact.renewed, fact.applied.assigned if fact.applied else ()
        return (), ()

    def _try(self, request: PollRequest) -> PollFact:
        schedule = self.schedule
        view = read_poll(schedule, request, ignores_tokens=self.ignores_tokens)
        before = schedule.version
        snapshot = view.snapshot
        change_set = prepare(snapshot)
        prepared = schedule.version
        if self.between is not None:
            self.between()
        renewed: Sequence[RenewLease] = ()
        if change_set.renewed:
            expires_ms = snapshot.now_ms + snapshot.limits.lease_ms
            renewed = schedule.renew(change_set.renewed, request.worker, expires_ms)
        applied, is_stale = None, False
        if change_set.changes_plan():
            try:
                applied = schedule.apply(change_set, request.worker, view.replacements)
            except StaleSnapshot:
                is_stale = True
        elif view.waits_for_time:
            schedule.advance_clock()
        return PollFact(request, view, change_set, before, prepared, renewed, applied, is_stale)
