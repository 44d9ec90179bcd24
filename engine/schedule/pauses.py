"""Which parts of the schedule are held still: paused (nothing is planned or assigned) or draining (nothing is planned,
what is scheduled is still done). Running jobs always go on: their workers renew and report as usual."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from engine.schedule.limits import Scope, ScopeKind


class PauseMode(enum.StrEnum):
    """How much stands still."""

    PAUSE = "pause"  # neither planning nor assigning
    DRAIN = "drain"  # no planning; scheduled jobs are assigned until none is left


@dataclass(frozen=True, slots=True)
class PausedScope:
    """One pause in force: all of the schedule, or a lane, a tenant ("" = segments) or a level by its ``value``."""

    kind: ScopeKind
    value: str = ""
    mode: PauseMode = PauseMode.PAUSE

    def covers(self, *, lane: str, tenant: str, level: int) -> bool:
        """Say whether a job or queue of this place is in the scope."""
        place = {ScopeKind.GLOBAL: "", ScopeKind.LANE: lane, ScopeKind.TENANT: tenant, ScopeKind.LEVEL: str(level)}
        return place.get(self.kind) == self.value

    def __str__(self) -> str:
        return f"{Scope(self.kind, self.value)} ({self.mode.value})"


def is_paused(paused: Iterable[PausedScope], *, lane: str, tenant: str, level: int, planning: bool = False) -> bool:
    """Say whether no job of this place may be assigned; with ``planning``: whether no new one may be planned."""
    return any(
        scope.covers(lane=lane, tenant=tenant, level=level)
        for scope in paused
        if planning or scope.mode is PauseMode.PAUSE
    )
