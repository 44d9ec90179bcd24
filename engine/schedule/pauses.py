"""Pauses of parts of the schedule.

A paused scope plans and assigns nothing; a draining scope plans nothing but still assigns scheduled jobs. Running jobs
are not affected: their workers renew leases and report as usual.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from engine.schedule.limits import Scope, ScopeKind


class PauseMode(enum.StrEnum):
    """Extent of a pause."""

    PAUSE = "pause"  # no planning and no assignment
    DRAIN = "drain"  # no planning; scheduled jobs are assigned until none is left


@dataclass(frozen=True, slots=True)
class PausedScope:
    """An active pause of the whole schedule, or of the lane, tenant ("" = segments) or level ``value``."""

    kind: ScopeKind
    value: str = ""
    mode: PauseMode = PauseMode.PAUSE

    def covers(self, *, lane: str, tenant: str, level: int) -> bool:
        """Return whether the scope covers a job or queue of this lane, tenant and level."""
        place = {ScopeKind.GLOBAL: "", ScopeKind.LANE: lane, ScopeKind.TENANT: tenant, ScopeKind.LEVEL: str(level)}
        return place.get(self.kind) == self.value

    def __str__(self) -> str:
        return f"{Scope(self.kind, self.value)} ({self.mode.value})"


def is_paused(paused: Iterable[PausedScope], *, lane: str, tenant: str, level: int, planning: bool = False) -> bool:
    """Return whether a pause forbids assignment; with ``planning``, whether a pause or drain forbids planning."""
    return any(
        scope.covers(lane=lane, tenant=tenant, level=level)
        for scope in paused
        if planning or scope.mode is PauseMode.PAUSE
    )
