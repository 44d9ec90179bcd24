"""The rules: the action, reason and priority of each chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from engine.core.formatting import format_size
from engine.lanes.tables.plan import reasons
from engine.lanes.tables.plan.columns import Bits, Flags, Ints
from engine.lanes.tables.plan.layout import Layout
from engine.lanes.tables.plan.model import PRIORITY_UNIT, Action, Chunk
from engine.lanes.tables.plan.policy import PERCENT, Align, TimelinePolicy

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

HALVINGS_MAX = 300
"""A chunk older than this number of half-lives has no recency."""
_TIE = 1e-4
"""Priorities this close to a rounding border are computed exactly, since floats differ between machines."""
_EXACT_DIGITS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringContext:
    """Inputs of scoring besides the layout.

    ``outputs`` maps starts of chunks to the segments that the last successful task left there under the same output
    fingerprint. ``now_ms`` and ``latest_end_ms`` are the references of age and hot window.
    """

    now_ms: int
    latest_end_ms: int
    outputs: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a chunk is skipped, and until when; None if time does not change it."""

    cause: str
    detail: str = ""
    until_ms: int | None = None


def hot_from_ms(policy: TimelinePolicy, context: ScoringContext) -> int | None:
    """Return the instant after which ending chunks are hot; None if there is no hot window.

    The window is counted back from the end of the data, or from now if there is data in the future.
    """
    return min(context.now_ms, context.latest_end_ms) - policy.hot_ms if policy.hot_ms else None


def find_skipped(layout: Layout, policy: TimelinePolicy, context: ScoringContext) -> dict[int, Skip]:
    """Return the skipped chunks and reasons, by position in the layout."""
    found: dict[int, Skip] = {}
    hot_ms = hot_from_ms(policy, context)
    if hot_ms is not None:
        for chunk in np.flatnonzero(layout.end > hot_ms).tolist():
            found[chunk] = Skip(reasons.HOT, until_ms=int(layout.end[chunk]) + policy.hot_ms)
    for chunk in np.flatnonzero(layout.unbounded >= 0).tolist():
        found[chunk] = Skip(reasons.UNBOUNDED, f"segment {int(layout.unbounded[chunk])}")
    for start_ms, end_ms, why in policy.excluded:
        first, last = np.searchsorted(layout.end, start_ms, "right"), np.searchsorted(layout.start, end_ms, "left")
        for chunk in range(int(first), int(last)):
            found[chunk] = Skip(reasons.EXCLUDED, why)
    return found


def score(
    layout: Layout, chunks: Ints, policy: TimelinePolicy, context: ScoringContext, skipped: Mapping[int, Skip]
) -> list[Chunk]:
    """Return the scored chunks at these positions of a layout."""
    decisions = _decide(layout, chunks, policy, context, skipped)
    terms = _terms(layout, chunks, policy, context, decisions.action)
    return _build_chunks(layout, chunks, policy, decisions, terms, skipped)


_ACTIONS = (Action.SKIPPED, Action.EMPTY, Action.STABLE, Action.NEUTRAL, Action.COMPACT)
_SKIPPED, _EMPTY, _STABLE, _NEUTRAL, _COMPACT = range(5)


@dataclass(slots=True, eq=False)
class _Decisions:
    action: Ints
    cause: list[str]
    detail: dict[int, str]


def _decide(
    layout: Layout, chunks: Ints, policy: TimelinePolicy, context: ScoringContext, skipped: Mapping[int, Skip]
) -> _Decisions:
    """Return the decision of the first matching rule for each chunk."""
    segments, largest = layout.sums.segments[chunks], layout.sums.largest[chunks]
    is_good = (largest <= policy.segment_bytes_max) & (segments == layout.sums.fit[chunks])
    is_marked = layout.prior[chunks] | layout.later[chunks]
    aligned = _COMPACT if policy.align is Align.ALWAYS else _NEUTRAL
    action = np.where(
        segments == 0, _EMPTY, np.where(is_good & ~is_marked, _STABLE, np.where(is_good, aligned, _COMPACT))
    )
    cause = np.where(
        segments == 0,
        _CAUSES[reasons.TOMBSTONES],
        np.where(
            is_good & ~is_marked,
            np.where(segments == 1, _CAUSES[reasons.SINGLE], _CAUSES[reasons.IDEAL]),
            np.where(
                is_good,
                _CAUSES[reasons.ALIGNED if aligned == _COMPACT else _misaligned(policy)],
                np.where(
                    layout.sums.is_overfull[chunks],
                    _CAUSES[reasons.OVERFULL],
                    np.where(largest > policy.segment_bytes_max, _CAUSES[reasons.OVERSIZE], _CAUSES[reasons.TOO_MANY]),
                ),
            ),
        ),
    )
    found = _Decisions(action, [_CAUSE_NAMES[number] for number in cause.tolist()], {})
    if found.action.size and _misaligned(policy) == reasons.MISALIGNED_ZONE:
        found.detail = dict.fromkeys(np.flatnonzero(action == _NEUTRAL).tolist(), policy.granularity.timezone)
    if context.outputs:
        _guard_convergence(found, layout, chunks, policy, context, is_good, is_marked)
    if skipped:
        for place, chunk in enumerate(chunks.tolist()):
            if chunk in skipped:
                skip = skipped[chunk]
                action[place], found.cause[place], found.detail[place] = _SKIPPED, skip.cause, skip.detail
    return found


def _misaligned(policy: TimelinePolicy) -> str:
    return reasons.MISALIGNED if policy.granularity.timezone == "UTC" else reasons.MISALIGNED_ZONE


_CAUSE_NAMES = tuple(reasons.CHUNK_REASONS)
_CAUSES = {name: number for number, name in enumerate(_CAUSE_NAMES)}


def _guard_convergence(
    found: _Decisions,
    layout: Layout,
    chunks: Ints,
    policy: TimelinePolicy,
    context: ScoringContext,
    is_good: Flags,
    is_marked: Flags,
) -> None:
    """Mark chunks as stable that are exactly the last task's outputs, since a writer cannot always reach the ideal."""
    places = [
        place
        for place, start_ms in enumerate(layout.start[chunks].tolist())
        if start_ms in context.outputs and not is_marked[place] and found.action[place] != _EMPTY
    ]
    if not places:
        return
    keys = layout.keys(chunks[np.array(places)])
    for place, here in zip(places, keys, strict=True):
        if layout.sums.tombstones[chunks[place]]:
            here = tuple(
                one.segment.key for one in layout.pieces_of(int(chunks[place])) if not one.segment.is_tombstone
            )
        if set(here) == context.outputs[int(layout.start[chunks[place]])]:
            found.action[place], found.cause[place] = _STABLE, reasons.CONVERGED
            found.detail[place] = (
                ""
                if is_good[place]
                else f"; the target size of {format_size(policy.segment_bytes_max)} was not reached"
            )


@dataclass(slots=True, eq=False)
class _Terms:
    fragmentation: Floats
    oversize: Floats
    alignment: Floats
    recency: Floats
    priority: list[int]


def _terms(layout: Layout, chunks: Ints, policy: TimelinePolicy, context: ScoringContext, action: Ints) -> _Terms:
    most, half = policy.segment_bytes_max, policy.half_life
    is_compact = action == _COMPACT
    bytes_ = layout.sums.bytes[chunks].astype(np.float64)
    saved = np.maximum(layout.sums.segments[chunks] - layout.sums.out[chunks], 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = saved / (saved + policy.gain_half)
        efficiency = np.where(saved > 0, saved / (saved + bytes_ / most), 0.0)
        oversize = np.maximum(0.0, 1.0 - most / np.maximum(layout.sums.largest[chunks], 1))
        alignment = np.where(bytes_ > 0, layout.spanning_bytes[chunks] / bytes_, 0.0)
    age = np.maximum(context.now_ms - layout.end[chunks], 0)
    recency = np.exp2(-np.minimum(age / half, HALVINGS_MAX))
    if policy.align is Align.ALWAYS:
        is_aligning = is_compact & (layout.sums.fit[chunks] == layout.sums.segments[chunks]) & (oversize == 0)
        gain = np.where(is_aligning, 0.0, gain)
    terms = [np.where(is_compact, term, 0.0) for term in (gain * efficiency, oversize, alignment, recency)]
    total = sum(weight * term for weight, term in zip(policy.weights, terms, strict=True)) * (PRIORITY_UNIT / PERCENT)
    nearest = np.rint(total)
    priority = np.where(is_compact, np.maximum(nearest, 1), 0).astype(np.int64).tolist()
    for place in np.flatnonzero(is_compact & (np.abs(np.abs(total - nearest) - 0.5) < _TIE)).tolist():
        chunk = int(chunks[place])
        priority[place] = exact_priority(
            policy,
            saved=int(saved[place]) if terms[0][place] else 0,
            bytes_=int(layout.sums.bytes[chunk]),
            largest=int(layout.sums.largest[chunk]),
            spanning=int(layout.spanning_bytes[chunk]),
            age_ms=int(age[place]),
        )
    fragmentation, oversize, alignment, recency = (term.round(6) for term in terms)
    return _Terms(fragmentation, oversize, alignment, recency, priority)


def exact_priority(policy: TimelinePolicy, *, saved: int, bytes_: int, largest: int, spanning: int, age_ms: int) -> int:
    """Return a priority in millionths, at least one, by exact arithmetic, rounded half to even."""
    most = policy.segment_bytes_max
    fragmentation = Fraction(0)
    if saved:
        fragmentation = Fraction(saved, saved + policy.gain_half) * Fraction(saved * most, saved * most + bytes_)
    oversize = max(Fraction(0), 1 - Fraction(most, max(largest, 1)))
    alignment = Fraction(spanning, bytes_) if bytes_ else Fraction(0)
    terms = (fragmentation, oversize, alignment, _recency(age_ms, policy.half_life))
    total = sum((weight * term for weight, term in zip(policy.weights, terms, strict=True)), Fraction(0))
    return max(1, round(total * PRIORITY_UNIT / PERCENT))


def _recency(age_ms: int, half_life_ms: int) -> Fraction:
    halvings, rest = divmod(age_ms, half_life_ms)
    if halvings >= HALVINGS_MAX:
        return Fraction(1, 1 << HALVINGS_MAX)
    if not rest:
        return Fraction(1, 1 << halvings)
    with localcontext() as context:
        context.prec = _EXACT_DIGITS
        part = Decimal(2) ** (-Decimal(rest) / Decimal(half_life_ms))
    return Fraction(part) / (1 << halvings)


def _build_chunks(
    layout: Layout,
    chunks: Ints,
    policy: TimelinePolicy,
    decisions: _Decisions,
    terms: _Terms,
    skipped: Mapping[int, Skip],
) -> list[Chunk]:
    """Return the chunks as objects."""
    versions = layout.seen.columns.versions
    has_shared = _has_shared(layout)[chunks].tolist()
    keys = layout.keys(chunks)
    columns = zip(*_columns(layout, chunks, policy, decisions, terms), strict=True)
    found: list[Chunk] = []
    for place, row in enumerate(columns):
        shared, shared_tombstones = layout.shared(int(chunks[place])) if has_shared[place] else ((), ())
        (start, end, rank, digest, segments, tombstones, fit, out, bytes_, largest, is_estimate) = row[:11]
        found.append(
            Chunk(
                start_ms=start,
                end_ms=end,
                version=versions[rank],
                count=segments + tombstones,
                digest=f"{digest:016x}",
                keys=keys[place],
                shared=shared,
                shared_tombstones=shared_tombstones,
                has_overlap_prior=row[11],
                has_overlap_later=row[12],
                reaches_start=row[13],
                reaches_end=row[14],
                segments=segments,
                fit=fit,
                out=out,
                bytes=bytes_,
                largest_bytes=largest,
                cost=row[15],
                is_estimate=is_estimate,
                action=_ACTIONS[row[16]],
                cause=row[17],
                detail=decisions.detail.get(place, ""),
                fragmentation=row[18],
                oversize=row[19],
                alignment=row[20],
                recency=row[21],
                priority=row[22],
            )
        )
    return found


def _columns(
    layout: Layout, chunks: Ints, policy: TimelinePolicy, decisions: _Decisions, terms: _Terms
) -> tuple[list[Any], ...]:
    """Return the fields of chunks, each as a list of plain values."""
    sums = layout.sums
    cost = sums.bytes[chunks] + policy.open_cost * sums.segments[chunks]
    taken: tuple[Ints | Bits | Flags, ...] = (
        layout.start,
        layout.end,
        sums.rank,
        layout.digest,
        sums.segments,
        sums.tombstones,
        sums.fit,
        sums.out,
        sums.bytes,
        sums.largest,
        sums.is_estimate,
        layout.prior,
        layout.later,
        layout.reaches_start,
        layout.reaches_end,
    )
    return (
        *(column[chunks].tolist() for column in taken),
        cost.tolist(),
        decisions.action.tolist(),
        decisions.cause,
        terms.fragmentation.tolist(),
        terms.oversize.tolist(),
        terms.alignment.tolist(),
        terms.recency.tolist(),
        terms.priority,
    )


def _has_shared(layout: Layout) -> Flags:
    """Return for each chunk whether it shares anything visible with another chunk."""
    if not layout.is_shared_entry.any():
        return np.zeros(len(layout), np.bool_)
    return np.asarray(np.logical_or.reduceat(layout.is_shared_entry[layout.piece_entry], layout.first_piece))
