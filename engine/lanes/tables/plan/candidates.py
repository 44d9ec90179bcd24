"""Select chunks to rewrite together: runs that share segments, joined if small, split if they cost too much."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from engine.lanes.tables.plan import reasons
from engine.lanes.tables.plan.model import Action, Chunk
from engine.lanes.tables.plan.policy import Spanning, TimelinePolicy


@dataclass(slots=True)
class Run:
    """Consecutive chunks that one task would rewrite."""

    chunks: list[Chunk]
    cost: int
    is_over_limit: bool = False


@dataclass(slots=True)
class Runs:
    """The runs in time order, and by start the tied chunks, which are left alone.

    Each comes with the cause for which the chunk that it is tied to is skipped, "" if that is not skipped.
    """

    runs: list[Run]
    tied: dict[int, tuple[Chunk, str]] = field(default_factory=dict)


def shares_data(one: Chunk, other: Chunk) -> bool:
    """Return whether a segment with data is visible in both chunks."""
    return bool(one.shared and other.shared) and not set(one.shared).isdisjoint(other.shared)


def find_runs(chunks: Sequence[Chunk], policy: TimelinePolicy) -> Runs:
    """Return the runs to make tasks of; ``chunks`` must be in time order."""
    candidates = _candidates(chunks)
    found = Runs([])
    if not policy.partial_visibility:
        candidates, found.tied = _without_tied(candidates, chunks)
    if policy.spanning is Spanning.TRIM:
        candidates = [_trimmed(candidate) for candidate in candidates]
    for run in _combined(candidates, policy):
        if run.cost <= policy.cost_max:
            found.runs.append(run)
        else:
            found.runs += _split(run, policy)
    return found


def _candidates(chunks: Iterable[Chunk]) -> list[list[Chunk]]:
    """Return runs of chunks that share data with the previous one, each with a chunk to compact."""
    found: list[list[Chunk]] = []
    previous: list[Chunk] | None = None
    for chunk in chunks:
        if chunk.action is not Action.COMPACT and chunk.action is not Action.NEUTRAL:
            previous = None
            continue
        if (
            chunk.has_overlap_prior
            and previous is not None
            and previous[-1].end_ms == chunk.start_ms
            and shares_data(previous[-1], chunk)
        ):
            previous.append(chunk)
        else:
            previous = [chunk]
            found.append(previous)
    return [run for run in found if any(chunk.action is Action.COMPACT for chunk in run)]


def _without_tied(
    candidates: list[list[Chunk]], chunks: Iterable[Chunk]
) -> tuple[list[list[Chunk]], dict[int, tuple[Chunk, str]]]:
    """Remove runs that share a segment with a chunk outside, since files are rewritten whole or not at all."""
    run_of = {chunk.start_ms: number for number, run in enumerate(candidates) for chunk in run}
    seen_in: dict[int, dict[int, Chunk]] = {}
    for chunk in chunks:
        for key in chunk.shared:
            seen_in.setdefault(key, {}).setdefault(run_of.get(chunk.start_ms, -1), chunk)
    kept: list[list[Chunk]] = []
    tied: dict[int, tuple[Chunk, str]] = {}
    for number, run in enumerate(candidates):
        outside = [
            chunk for own in run for key in own.shared for other, chunk in seen_in[key].items() if other != number
        ]
        if not outside:
            kept.append(run)
            continue
        skipped = next((chunk for chunk in outside if chunk.action is Action.SKIPPED), None)
        detail = reasons.HIDDEN_IN_PART
        if skipped:
            detail = skipped.detail if skipped.cause == reasons.TIED else skipped.reason
        cause = skipped.cause if skipped else ""
        tied |= {
            chunk.start_ms: (skipped_chunk(chunk, reasons.TIED, detail), cause)
            for chunk in run
            if chunk.action is Action.COMPACT
        }
    return kept, tied


def skipped_chunk(chunk: Chunk, cause: str, detail: str) -> Chunk:
    """Return a chunk marked as skipped for this cause."""
    return replace(
        chunk,
        action=Action.SKIPPED,
        cause=cause,
        detail=detail,
        fragmentation=0.0,
        oversize=0.0,
        alignment=0.0,
        recency=0.0,
        priority=0,
    )


def _trimmed(chunks: list[Chunk]) -> list[Chunk]:
    wanted = [place for place, chunk in enumerate(chunks) if chunk.action is Action.COMPACT]
    return chunks[wanted[0] : wanted[-1] + 1]


def _combined(candidates: Iterable[list[Chunk]], policy: TimelinePolicy) -> list[Run]:
    """Join small adjacent runs."""
    found: list[Run] = []
    small = policy.small_cost
    for chunks in candidates:
        cost = sum([chunk.cost for chunk in chunks])
        if found and cost < small:
            previous = found[-1]
            last = previous.chunks[-1]
            first = chunks[0]
            if previous.cost < small and last.end_ms == first.start_ms and last.reaches_end and first.reaches_start:
                previous.chunks += chunks
                previous.cost += cost
                continue
        found.append(Run(list(chunks), cost))
    return found


def _split(run: Run, policy: TimelinePolicy) -> list[Run]:
    """Split a run at chunk borders into parts within the cost limit; an indivisible part may exceed it."""
    parts: list[list[Chunk]] = []
    cost = 0
    for unit in _units(run.chunks, policy):
        more = sum(chunk.cost for chunk in unit)
        if parts and cost + more <= policy.cost_max:
            parts[-1] += unit
            cost += more
        else:
            parts.append(unit)
            cost = more
    kept = [part for part in parts if any(chunk.action is Action.COMPACT for chunk in part)]
    if policy.spanning is Spanning.TRIM:
        kept = [_trimmed(part) for part in kept]
    costs = [sum(chunk.cost for chunk in part) for part in kept]
    return [Run(part, cost, cost > policy.cost_max) for part, cost in zip(kept, costs, strict=True)]


def _units(chunks: Sequence[Chunk], policy: TimelinePolicy) -> list[list[Chunk]]:
    """Return indivisible units: chunks with a common file if files are visible whole, else single chunks."""
    units: list[list[Chunk]] = []
    for chunk in chunks:
        if units and not policy.partial_visibility and shares_data(units[-1][-1], chunk):
            units[-1].append(chunk)
        else:
            units.append([chunk])
    return units
