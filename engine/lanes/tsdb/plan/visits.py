"""Visit marks of foreign compactors: a fresh one says that somebody else works on the tenant's blocks."""

from __future__ import annotations

from collections.abc import Iterable

from engine.core.time_texts import moment
from engine.lanes.tsdb.plan.model import VisitMark


def fresh_marks(visits: Iterable[VisitMark], *, own: str, now_ms: int, timeout_ms: int) -> list[VisitMark]:
    """Return the marks of others that have not expired, the one that lasts longest first."""
    fresh = (mark for mark in visits if mark.visitor != own and mark.visited_at_ms + timeout_ms > now_ms)
    return sorted(fresh, key=lambda mark: (-mark.visited_at_ms, mark.place, mark.visitor))


def refusal(mark: VisitMark) -> str:
    """Return why a tenant with this mark is not planned."""
    seen = moment(mark.visited_at_ms)
    return f"another compactor, {mark.visitor}, has left a visit mark on {mark.place} at {seen}; stop it first"
