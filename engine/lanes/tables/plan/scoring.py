"""The rules: what is to be done with each chunk, why, and how urgent it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from engine.core.sizes import size_text
from engine.lanes.tables.plan import words
from engine.lanes.tables.plan.columns import Bits, Flags, Ints
from engine.lanes.tables.plan.layout import Layout
from engine.lanes.tables.plan.model import PRIORITY_UNIT, Action, Chunk
from engine.lanes.tables.plan.policy import PERCENT, Align, TimelinePolicy

Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

HALVINGS_MAX = 300
"""A chunk that is older than so many half-lives has no recency."""
_TIE = 1e-4
"""Priorities this near to the middle of two millionths are computed exactly: floats differ between machines."""
_EXACT_DIGITS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of chunks beside what lies in them, by their starts.

    ``outputs`` are the segments that the last successful task left there under the same output fingerprint, ``now_ms``
    and ``latest_end_ms`` anchor age and the hot window.
    """

    now_ms: int
    latest_end_ms: int
    outputs: Mapping[int, frozenset[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Skip:
    """Why a chunk is left alone, and until when; None for as long as things stay as they are."""

    cause: str
    detail: str = ""
    until_ms: int | None = None


def hot_from_ms(policy: TimelinePolicy, known: Known) -> int | None:
    """Return the instant after which chunks that end are hot; None if none is.

    The window is counted back from the end of the data, or from now if data of the future is there.
    """
    return min(known.now_ms, known.latest_end_ms) - policy.hot_ms if policy.hot_ms else None


def skips(layout: Layout, policy: TimelinePolicy, known: Known) -> dict[int, Skip]:
    """Return why chunks are left alone, by their place in the layout."""
    found: dict[int, Skip] = {}
    hot_ms = hot_from_ms(policy, known)
    if hot_ms is not None:
        for chunk in np.flatnonzero(layout.end > hot_ms).tolist():
            found[chunk] = Skip(words.HOT, until_ms=int(layout.end[chunk]) + policy.hot_ms)
    for chunk in np.flatnonzero(layout.unbounded >= 0).tolist():
        found[chunk] = Skip(words.UNBOUNDED, f"segment {int(layout.unbounded[chunk])}")
    for start_ms, end_ms, why in policy.excluded:
        first, last = np.searchsorted(layout.end, start_ms, "right"), np.searchsorted(layout.start, end_ms, "left")
        for chunk in range(int(first), int(last)):
            found[chunk] = Skip(words.EXCLUDED, why)
    return found


def score(
    layout: Layout, chunks: Ints, policy: TimelinePolicy, known: Known, skipped: Mapping[int, Skip]
) -> list[Chunk]:
    """Return what the rules say of some chunks of a layout, given by their places."""
    judged = _judge(layout, chunks, policy, known, skipped)
    terms = _terms(layout, chunks, policy, known, judged.action)
    return _told(layout, chunks, policy, judged, terms, skipped)


_ACTIONS = (Action.SKIPPED, Action.EMPTY, Action.STABLE, Action.NO_OPINION, Action.COMPACT)
_SKIPPED, _EMPTY, _STABLE, _NO_OPINION, _COMPACT = range(5)


@dataclass(slots=True, eq=False)
class _Judged:
    action: Ints
    cause: list[str]
    detail: dict[int, str]


def _judge(layout: Layout, chunks: Ints, policy: TimelinePolicy, known: Known, skipped: Mapping[int, Skip]) -> _Judged:
    """Return what the first rule that holds says of each chunk."""
    segments, largest = layout.sums.segments[chunks], layout.sums.largest[chunks]
    is_good = (largest <= policy.segment_bytes_max) & (segments == layout.sums.fit[chunks])
    is_marked = layout.prior[chunks] | layout.later[chunks]
    aligned = _COMPACT if policy.align is Align.ALWAYS else _NO_OPINION
    action = np.where(
        segments == 0, _EMPTY, np.where(is_good & ~is_marked, _STABLE, np.where(is_good, aligned, _COMPACT))
    )
    cause = np.where(
        segments == 0,
        _CAUSES[words.TOMBSTONES],
        np.where(
            is_good & ~is_marked,
            np.where(segments == 1, _CAUSES[words.SINGLE], _CAUSES[words.IDEAL]),
            np.where(
                is_good,
                _CAUSES[words.ALIGNED if aligned == _COMPACT else _misaligned(policy)],
                np.where(
                    layout.sums.is_overfull[chunks],
                    _CAUSES[words.OVERFULL],
                    np.where(largest > policy.segment_bytes_max, _CAUSES[words.OVERSIZE], _CAUSES[words.TOO_MANY]),
                ),
            ),
        ),
    )
    found = _Judged(action, [_CAUSE_NAMES[number] for number in cause.tolist()], {})
    if found.action.size and _misaligned(policy) == words.MISALIGNED_ZONE:
        found.detail = dict.fromkeys(np.flatnonzero(action == _NO_OPINION).tolist(), policy.granularity.timezone)
    if known.outputs:
        _guard_convergence(found, layout, chunks, policy, known, is_good, is_marked)
    if skipped:
        for place, chunk in enumerate(chunks.tolist()):
            if chunk in skipped:
                skip = skipped[chunk]
                action[place], found.cause[place], found.detail[place] = _SKIPPED, skip.cause, skip.detail
    return found


def _misaligned(policy: TimelinePolicy) -> str:
    return words.MISALIGNED if policy.granularity.timezone == "UTC" else words.MISALIGNED_ZONE


_CAUSE_NAMES = tuple(words.CHUNK)
_CAUSES = {name: number for number, name in enumerate(_CAUSE_NAMES)}


def _guard_convergence(
    found: _Judged,
    layout: Layout,
    chunks: Ints,
    policy: TimelinePolicy,
    known: Known,
    is_good: Flags,
    is_marked: Flags,
) -> None:
    """Leave alone what is exactly what the last task made of it: a writer cannot always reach the ideal."""
    places = [
        place
        for place, start_ms in enumerate(layout.start[chunks].tolist())
        if start_ms in known.outputs and not is_marked[place] and found.action[place] != _EMPTY
    ]
    if not places:
        return
    keys = layout.keys(chunks[np.array(places)])
    for place, here in zip(places, keys, strict=True):
        if layout.sums.tombstones[chunks[place]]:
            here = tuple(
                one.segment.key for one in layout.pieces_of(int(chunks[place])) if not one.segment.is_tombstone
            )
        if set(here) == known.outputs[int(layout.start[chunks[place]])]:
            found.action[place], found.cause[place] = _STABLE, words.CONVERGED
            found.detail[place] = "" if is_good[place] else f": it cannot reach {size_text(policy.segment_bytes_max)}"


@dataclass(slots=True, eq=False)
class _Terms:
    fragmentation: Floats
    oversize: Floats
    alignment: Floats
    recency: Floats
    priority: list[int]


def _terms(layout: Layout, chunks: Ints, policy: TimelinePolicy, known: Known, action: Ints) -> _Terms:
    most, half = policy.segment_bytes_max, policy.half_life
    is_compact = action == _COMPACT
    bytes_ = layout.sums.bytes[chunks].astype(np.float64)
    saved = np.maximum(layout.sums.segments[chunks] - layout.sums.out[chunks], 0).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = saved / (saved + policy.gain_half)
        efficiency = np.where(saved > 0, saved / (saved + bytes_ / most), 0.0)
        oversize = np.maximum(0.0, 1.0 - most / np.maximum(layout.sums.largest[chunks], 1))
        alignment = np.where(bytes_ > 0, layout.spanning_bytes[chunks] / bytes_, 0.0)
    age = np.maximum(known.now_ms - layout.end[chunks], 0)
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
    """Return a priority in millionths, at least one, as exact arithmetic gives it, rounded half to even."""
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


def _told(
    layout: Layout,
    chunks: Ints,
    policy: TimelinePolicy,
    judged: _Judged,
    terms: _Terms,
    skipped: Mapping[int, Skip],
) -> list[Chunk]:
    """Return the chunks as objects."""
    versions = layout.seen.columns.versions
    has_shared = _has_shared(layout)[chunks].tolist()
    keys = layout.keys(chunks)
    columns = zip(*_columns(layout, chunks, policy, judged, terms), strict=True)
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
                detail=judged.detail.get(place, ""),
                fragmentation=row[18],
                oversize=row[19],
                alignment=row[20],
                recency=row[21],
                priority=row[22],
            )
        )
    return found


def _columns(
    layout: Layout, chunks: Ints, policy: TimelinePolicy, judged: _Judged, terms: _Terms
) -> tuple[list[Any], ...]:
    """Return what chunks consist of, each as a list of plain values."""
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
        judged.action.tolist(),
        judged.cause,
        terms.fragmentation.tolist(),
        terms.oversize.tolist(),
        terms.alignment.tolist(),
        terms.recency.tolist(),
        terms.priority,
    )


def _has_shared(layout: Layout) -> Flags:
    """Say of each chunk whether anything in it is seen in another chunk too."""
    if not layout.is_shared_entry.any():
        return np.zeros(len(layout), np.bool_)
    return np.asarray(np.logical_or.reduceat(layout.is_shared_entry[layout.piece_entry], layout.first_piece))
