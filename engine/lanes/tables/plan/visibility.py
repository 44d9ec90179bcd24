"""Determine which entries of a timeline are visible: higher versions hide lower ones, incomplete ones hide nothing.

Versions are texts; the greater one wins. Those that Lithify creates are instants, so that they increase with time. An
*entry* is all segments of one interval and version. Visible stretches never overlap: one entry wins at each instant.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from engine.core.formatting import format_time
from engine.lanes.tables.plan.columns import Columns, Flags, Ints, without
from engine.lanes.tables.plan.model import Segment
from engine.schedule.errors import SnapshotRefused

_FORM = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class TimelineCorrupt(SnapshotRefused):
    """Two different entries of one version overlap, so visibility is ambiguous."""

    code = "timeline_corrupt"


@dataclass(slots=True, eq=False)
class Visible:
    """The visible part of a timeline. Entries are numbered in the order of their segments, which start at ``first``.

    Each stretch belongs to one entry; stretches are in time order. Segments that are hidden within their entry, or wait
    for others, are not among the columns. ``incomplete`` are segments of entries with missing core partitions.
    """

    columns: Columns
    entry: Ints
    first: Ints
    count: Ints
    stretch_entry: Ints
    stretch_start: Ints
    stretch_end: Ints
    incomplete: tuple[int, ...]


def visible(found: Columns) -> Visible:
    """Return the visible part. Raises TimelineCorrupt if it is ambiguous."""
    entry, first = _entries(found)
    if found.has_minor:
        hidden = _hidden_by_minor(found, first)
        if hidden.any():
            found = without(found, hidden)
            entry, first = _entries(found)
    count = np.diff(first, append=len(found))
    is_complete = _complete(found, entry, first)
    if not is_complete.all():
        _check_versions(
            found.start[first].tolist(), found.end[first].tolist(), found.rank[first].tolist(), found.versions
        )
    stretches = _stretches(found, first, is_complete)
    return Visible(found, entry, first, count, *stretches, tuple(found.key[~is_complete[entry]].tolist()))


def _entries(found: Columns) -> tuple[Ints, Ints]:
    """Return the entry number of each segment, and the index of each entry's first segment."""
    is_first = np.ones(len(found), np.bool_)
    is_first[1:] = (
        (found.start[1:] != found.start[:-1]) | (found.end[1:] != found.end[:-1]) | (found.rank[1:] != found.rank[:-1])
    )
    return np.cumsum(is_first) - 1, np.flatnonzero(is_first)


def _complete(found: Columns, entry: Ints, first: Ints) -> Flags:
    """Return for each entry whether all its core partitions are known."""
    if not len(first) or not found.core.any():
        return np.ones(len(first), np.bool_)
    core = np.maximum.reduceat(np.where(found.tombstone, 0, found.core), first)
    if found.has_minor:
        covered = np.array([_roots_below(found, at, to, int(most)) for at, to, most in _spans(first, len(found), core)])
    else:
        covered = np.add.reduceat((found.partition < core[entry]).astype(np.int64), first)
    return np.asarray(covered >= core)


def _spans(first: Ints, total: int, core: Ints) -> list[tuple[int, int, int]]:
    return list(zip(first.tolist(), [*first[1:].tolist(), total], core.tolist(), strict=True))


def _roots_below(found: Columns, at: int, to: int, most: int) -> int:
    """Return how many of an entry's first-generation partitions below ``most`` are known, original or rewritten."""
    roots: set[int] = set()
    for one in found.segments[at:to]:
        start, end = root_range(one)
        roots.update(range(start, min(end, most)))
    return len(roots)


def root_range(one: Segment) -> tuple[int, int]:
    """Return the first-generation partitions whose rows a segment contains, end exclusive."""
    return (one.root_start, one.root_end) if one.root_end is not None else (one.partition, one.partition + 1)


def _hidden_by_minor(found: Columns, first: Ints) -> Flags:
    """Return for each segment whether others of its entry hide it, or its update group is incomplete."""
    hidden = np.zeros(len(found), np.bool_)
    for at, to in zip(first.tolist(), [*first[1:].tolist(), len(found)], strict=True):
        members = found.segments[at:to]
        if not any(one.minor_version for one in members):
            continue
        groups: dict[tuple[int, int, int], list[int]] = {}
        for place, one in enumerate(members, at):
            groups.setdefault((one.minor_version, *root_range(one)), []).append(place)
        whole = {
            group
            for group, places in groups.items()
            if not group[0] or len(places) >= max(found.segments[place].group_size for place in places)
        }
        for group, places in groups.items():
            if group not in whole or any(_contains(other, group) for other in whole):
                hidden[places] = True
    return hidden


def _contains(other: tuple[int, int, int], group: tuple[int, int, int]) -> bool:
    return other[0] > group[0] and other[1] <= group[1] and group[2] <= other[2]


def _stretches(found: Columns, first: Ints, is_complete: Flags) -> tuple[Ints, Ints, Ints]:
    entries = np.flatnonzero(is_complete)
    start, end = found.start[first[entries]], found.end[first[entries]]
    if not len(entries):
        return entries, start, end
    reached = np.maximum.accumulate(end)
    begins = np.ones(len(entries), np.bool_)
    begins[1:] = start[1:] >= reached[:-1]
    bounds = np.flatnonzero(begins)
    sizes = np.diff(bounds, append=len(entries))
    if (sizes == 1).all():
        return entries, start, end
    is_alone = np.repeat(sizes == 1, sizes)
    rank = found.rank[first[entries]]
    swept: list[tuple[int, int, int]] = []
    for at, size in zip(bounds[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        part = slice(at, at + size)
        swept += _sweep(
            entries[part].tolist(), start[part].tolist(), end[part].tolist(), rank[part].tolist(), found.versions
        )
    table = np.array(swept, np.int64).reshape(-1, 3)
    of_entry = np.concatenate([entries[is_alone], table[:, 0]])
    starts = np.concatenate([start[is_alone], table[:, 1]])
    order = np.argsort(starts, kind="stable")
    return of_entry[order], starts[order], np.concatenate([end[is_alone], table[:, 2]])[order]


def _sweep(
    entries: list[int], starts: list[int], ends: list[int], ranks: list[int], versions: list[str]
) -> list[tuple[int, int, int]]:
    """Return (entry, start, end) of the visible stretches of overlapping entries, given by their starts."""
    _check_versions(starts, ends, ranks, versions)
    found: list[tuple[int, int, int]] = []
    open_entries: list[tuple[int, int]] = []  # (minus rank, index) of open entries, the winner first
    place, at = 0, starts[0]
    while place < len(entries) or open_entries:
        while place < len(entries) and starts[place] <= at:
            heapq.heappush(open_entries, (-ranks[place], place))
            place += 1
        while open_entries and ends[open_entries[0][1]] <= at:
            heapq.heappop(open_entries)
        if not open_entries:
            if place < len(entries):
                at = starts[place]
            continue
        winner = open_entries[0][1]
        until = ends[winner] if place == len(entries) else min(ends[winner], starts[place])
        if found and found[-1][0] == entries[winner] and found[-1][2] == at:
            found[-1] = (entries[winner], found[-1][1], until)
        else:
            found.append((entries[winner], at, until))
        at = until
    return found


def _check_versions(starts: list[int], ends: list[int], ranks: list[int], versions: list[str]) -> None:
    reached: dict[int, tuple[int, int]] = {}
    for start, end, rank in zip(starts, ends, ranks, strict=True):
        before = reached.get(rank)
        if before is not None and start < before[1]:
            raise TimelineCorrupt(
                f"version {versions[rank]!r} exists for {format_time(before[0])} to {format_time(before[1])} "
                f"and for {format_time(start)} to {format_time(end)}, which overlap"
            )
        if before is None or end > before[1]:
            reached[rank] = (start, end)


def instant_version(time_ms: int) -> str:
    """Return the version of an instant, like ``2024-02-01T00:00:00.000Z``."""
    when = _EPOCH + timedelta(milliseconds=time_ms)
    return when.replace(tzinfo=None).isoformat(timespec="milliseconds").zfill(23) + "Z"


def version_above(now_ms: int, versions: Iterable[str]) -> str:
    """Return a version above all of these: now, or just after the highest one if the clock is behind it."""
    highest = max(versions, default="")
    now = instant_version(now_ms)
    if now > highest:
        return now
    if _FORM.fullmatch(highest):
        try:
            after = datetime.fromisoformat(highest) + _MILLISECOND
        except (ValueError, OverflowError):
            return highest + "+"
        return instant_version((after - _EPOCH) // _MILLISECOND)
    return highest + "+"
