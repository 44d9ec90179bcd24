"""The segments of a timeline as numeric columns, checked and in canonical order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import xxhash

from engine.lanes.tables.plan.model import Segment
from engine.lanes.tables.plan.policy import BYTES_MAX
from engine.schedule.errors import SnapshotRefused

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
Bits = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
Flags = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]

FOREVER_START_MS = -(1 << 62)
FOREVER_END_MS = (1 << 62) - 1
"""Bounds of all time: an interval that starts or ends there is unbounded on that side."""
SUM_MAX = 1 << 62
UNKNOWN = -1


@dataclass(slots=True, eq=False)
class Columns:
    """Distinct segments sorted by (start, end, version, partition).

    ``rank`` is the index of a segment's version in ``versions``. Unknown sizes are ``UNKNOWN``.
    """

    segments: Sequence[Segment]
    key: Ints
    start: Ints
    end: Ints
    rank: Ints
    partition: Ints
    size: Ints
    core: Ints
    tombstone: Flags
    versions: list[str]
    folder: Ints | None
    has_minor: bool

    def __len__(self) -> int:
        return len(self.segments)


def columns(segments: Sequence[Segment]) -> Columns:
    """Return the columns of segments, given in any order.

    Raises SnapshotRefused for invalid segments: empty intervals, numbers out of bounds, two segments in one place, one
    segment in two places.
    """
    names = list(map(attrgetter("version"), segments))
    versions = sorted(set(names))
    places = {version: place for place, version in enumerate(versions)}
    found = Columns(
        segments=segments,
        key=_numbers(segments, "key"),
        start=_numbers(segments, "start_ms"),
        end=_numbers(segments, "end_ms"),
        rank=np.fromiter(map(places.__getitem__, names), np.int64, len(names)),
        partition=_numbers(segments, "partition"),
        size=_sizes(segments),
        core=_numbers(segments, "core_partitions"),
        tombstone=np.fromiter(map(attrgetter("is_tombstone"), segments), np.bool_, len(segments)),
        versions=versions,
        folder=_folders(segments),
        has_minor=any(map(attrgetter("minor_version"), segments)),
    )
    found = _sorted(found)
    _check(found)
    return found


def _numbers(segments: Sequence[Segment], name: str) -> Ints:
    try:
        return np.fromiter(map(attrgetter(name), segments), np.int64, len(segments))
    except (OverflowError, TypeError, ValueError):
        bad = next(one for one in segments if not _is_number(getattr(one, name)))
        raise SnapshotRefused(
            f"segment {bad.key} has {name} {getattr(bad, name)!r}, which is not a 64-bit integer"
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and -(1 << 63) <= value < 1 << 63


def _sizes(segments: Sequence[Segment]) -> Ints:
    sizes = list(map(attrgetter("size_bytes"), segments))
    if None in sizes:
        sizes = [UNKNOWN if size is None else size for size in sizes]
    try:
        found = np.fromiter(sizes, np.int64, len(sizes))
    except OverflowError:
        found = np.fromiter((min(size, SUM_MAX) for size in sizes), np.int64, len(sizes))
    bad = np.flatnonzero((found < UNKNOWN) | (found > BYTES_MAX))
    if len(bad) or (sizes and min(sizes) < UNKNOWN):
        one = segments[int(bad[0])]
        raise SnapshotRefused(f"segment {one.key} has a size of {one.size_bytes} bytes")
    if int(np.maximum(found, 0).astype(np.float64).sum()) > SUM_MAX:
        raise SnapshotRefused(f"the sum of the segments exceeds {SUM_MAX} bytes")
    return found


def _folders(segments: Sequence[Segment]) -> Ints | None:
    """Return the number of each segment's folder, None if there is only one folder."""
    names = list(map(attrgetter("folder"), segments))
    places = {name: place for place, name in enumerate(sorted(set(names)))}
    return np.fromiter(map(places.__getitem__, names), np.int64, len(names)) if len(places) > 1 else None


def _sorted(found: Columns) -> Columns:
    parts = (found.start, found.end, found.rank, found.partition, found.key)
    if _is_sorted(parts):
        return found
    order = np.lexsort(parts[::-1])
    segments = found.segments
    return _reordered(found, order, [segments[place] for place in order.tolist()])


def _reordered(found: Columns, order: Ints, segments: Sequence[Segment]) -> Columns:
    return Columns(
        segments=segments,
        key=found.key[order],
        start=found.start[order],
        end=found.end[order],
        rank=found.rank[order],
        partition=found.partition[order],
        size=found.size[order],
        core=found.core[order],
        tombstone=found.tombstone[order],
        versions=found.versions,
        folder=None if found.folder is None else found.folder[order],
        has_minor=found.has_minor,
    )


def without(found: Columns, is_out: Flags) -> Columns:
    """Return the columns without the marked segments."""
    order = np.flatnonzero(~is_out)
    segments = found.segments
    return _reordered(found, order, [segments[place] for place in order.tolist()])


def _is_sorted(parts: Sequence[Ints]) -> bool:
    equal: Flags | None = None
    for part in parts:
        less = part[1:] < part[:-1]
        if bool((less if equal is None else less & equal).any()):
            return False
        same = part[1:] == part[:-1]
        equal = same if equal is None else same & equal
    return True


def _check(found: Columns) -> None:
    _refuse(found, found.start >= found.end, "an empty interval: {start_ms} to {end_ms} ms")
    is_far = (found.start < FOREVER_START_MS) | (found.end > FOREVER_END_MS)
    _refuse(found, is_far, "an interval out of bounds: {start_ms} to {end_ms} ms")
    _refuse(found, (found.partition < 0) | (found.core < 0), "partition {partition} of {core_partitions}")
    if len(set(found.key.tolist())) < len(found):
        keys = found.key[np.argsort(found.key, kind="stable")]
        key = int(keys[1:][keys[1:] == keys[:-1]][0])
        raise SnapshotRefused(f"segment {key} appears more than once")
    same = (
        (found.start[1:] == found.start[:-1])
        & (found.end[1:] == found.end[:-1])
        & (found.rank[1:] == found.rank[:-1])
        & (found.partition[1:] == found.partition[:-1])
    )
    if same.any():
        place = int(np.flatnonzero(same)[0])
        one, other = found.segments[place], found.segments[place + 1]
        raise SnapshotRefused(
            f"segments {one.key} and {other.key} are both partition {one.partition} of version {one.version!r} "
            f"from {one.start_ms} to {one.end_ms} ms"
        )


def _refuse(found: Columns, is_bad: Flags, what: str) -> None:
    if is_bad.any():
        one = found.segments[int(np.flatnonzero(is_bad)[0])]
        reason = what.format(
            start_ms=one.start_ms, end_ms=one.end_ms, partition=one.partition, core_partitions=one.core_partitions
        )
        raise SnapshotRefused(f"segment {one.key} has {reason}")


def spread(starts: Ints, counts: Ints) -> Ints:
    """Return the numbers ``start, start + 1, …`` of each start, ``count`` of them, concatenated."""
    before = np.cumsum(counts) - counts
    return np.asarray(np.repeat(starts - before, counts) + np.arange(int(counts.sum())))


def mixed(*parts: Ints | Bits) -> Bits:
    """Return a 64-bit hash of each row of these columns."""
    found = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        found = found * _ODD + part.astype(np.uint64)
        found ^= found >> np.uint64(30)
        found *= _FIRST
        found ^= found >> np.uint64(27)
        found *= _SECOND
        found ^= found >> np.uint64(31)
    return found


_ODD = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def text_hashes(texts: Sequence[str]) -> Bits:
    """Return a 64-bit hash of each text."""
    return np.array([xxhash.xxh64_intdigest(text.encode()) for text in texts], np.uint64)
