"""Blocks written down as short texts, for the rows of the reference sheet."""

from __future__ import annotations

import re

from engine.lanes.tsdb.plan.model import IntervalBlock, IntervalPlan
from engine.lanes.tsdb.plan.policy import HOUR_MS

LATER_MS = 1000 * HOUR_MS


def block(name: str, start: float, end: float, *, unit: int = HOUR_MS, level: int = 1, **rest: object) -> IntervalBlock:
    """Return a block of some hours (or other units), with one series, uploaded long ago."""
    told = {"sources": (name,), "uploaded_at_ms": 0, "series": 1} | rest
    return IntervalBlock(
        ulid=name,
        min_time_ms=round(start * unit),
        max_time_ms=round(end * unit),
        level=level,
        **told,  # type: ignore[arg-type]
    )


def blocks(text: str, *, unit: int = HOUR_MS, level: int = 1) -> list[IntervalBlock]:
    """Return the blocks of a list like ``0-2 e2:2-4 0-2``, each named by its text; a repeated one gets a prime."""
    made: list[IntervalBlock] = []
    for word in text.split():
        key, _, span = word.rpartition(":")
        start, end = re.fullmatch(r"(-?[\d.]+)-(-?[\d.]+)", span).groups()  # type: ignore[union-attr]
        name = word + "'" * sum(one.ulid.rstrip("'") == word for one in made)
        made.append(block(name, float(start), float(end), unit=unit, level=level, group_key=key))
    return made


def told(found: IntervalPlan) -> list[str]:
    """Return the groups as ``key start-end xcount`` in hours."""
    return [
        f"{one.group_key} {one.start_ms // HOUR_MS}-{one.end_ms // HOUR_MS} x{len(one.blocks)}" for one in found.groups
    ]
