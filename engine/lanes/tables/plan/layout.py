"""Compute the content of each time chunk: segments, bytes, what it shares with other chunks, and a digest.

Work is done per entry and chunk, not per segment, wherever an entry is visible whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.lanes.tables.plan.columns import (
    FOREVER_END_MS,
    FOREVER_START_MS,
    SUM_MAX,
    UNKNOWN,
    Bits,
    Columns,
    Flags,
    Ints,
    columns,
    mixed,
    spread,
    text_hashes,
)
from engine.lanes.tables.plan.model import Piece, Segment
from engine.lanes.tables.plan.policy import BYTES_MAX, TimelinePolicy
from engine.lanes.tables.plan.visibility import Visible, visible
from engine.schedule.errors import SnapshotRefused

CHUNKS_MAX = 10_000
"""A segment that overlaps more chunks than this is not cut into chunks."""
_SAFE_LENGTH_MS = 3_000_000_000
"""Products of two times within intervals up to this length fit into 64 bits."""


@dataclass(slots=True, eq=False)
class Sums:
    """Counts and sizes of each chunk: ``segments`` with data, and their visible ``bytes``.

    ``fit`` and ``out`` are the numbers of objects that the whole segments and the visible bytes need. ``largest`` is
    the size of the largest segment, scaled up if it has more rows than wanted (``is_overfull``: too large only because
    of its rows). ``rank`` is the rank of the highest version.
    """

    segments: Ints
    tombstones: Ints
    bytes: Ints
    fit: Ints
    out: Ints
    largest: Ints
    rank: Ints
    is_estimate: Flags
    is_overfull: Flags


@dataclass(slots=True, eq=False)
class Layout:
    """Chunks in time order, as columns; pieces in time order, those of chunk ``c`` from ``first_piece[c]`` on.

    ``spanning_bytes`` are bytes of segments that are also in other chunks, which are before (``prior``) or after
    (``later``) it. ``unbounded`` is the key of a segment that reaches into the chunk without being cut, or -1.
    """

    seen: Visible
    start: Ints
    end: Ints
    first_piece: Ints
    pieces: Ints
    piece_entry: Ints
    piece_start: Ints
    piece_end: Ints
    sums: Sums
    spanning_bytes: Ints
    prior: Flags
    later: Flags
    reaches_start: Flags
    reaches_end: Flags
    unbounded: Ints
    digest: Bits
    is_shared_entry: Flags
    unbounded_keys: tuple[int, ...]
    latest_end_ms: int

    def __len__(self) -> int:
        return len(self.start)

    def version(self, chunk: int) -> str:
        """Return the highest version visible in a chunk."""
        return self.seen.columns.versions[int(self.sums.rank[chunk])]

    def keys(self, chunks: Ints) -> list[tuple[int, ...]]:
        """Return the sorted keys of all segments visible in each of these chunks."""
        pieces = spread(self.first_piece[chunks], self.pieces[chunks])
        entries = self.piece_entry[pieces]
        counts = self.seen.count[entries]
        keys = self.seen.columns.key[spread(self.seen.first[entries], counts)].tolist()
        ends = np.cumsum(counts)[np.cumsum(self.pieces[chunks]) - 1].tolist()
        found, at = [], 0
        for end, several in zip(ends, (self.pieces[chunks] > 1).tolist(), strict=True):
            part = keys[at:end]
            found.append(tuple(sorted(set(part) if several else part)))
            at = end
        return found

    def shared(self, chunk: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the sorted keys of segments also visible in other chunks: those with data, and tombstones."""
        data: set[int] = set()
        tombstones: set[int] = set()
        at, seen = int(self.first_piece[chunk]), self.seen
        for entry in self.piece_entry[at : at + int(self.pieces[chunk])].tolist():
            if self.is_shared_entry[entry]:
                first = int(seen.first[entry])
                for one in seen.columns.segments[first : first + int(seen.count[entry])]:
                    (tombstones if one.is_tombstone else data).add(one.key)
        return tuple(sorted(data)), tuple(sorted(tombstones))

    def pieces_of(self, chunk: int) -> list[Piece]:
        """Return the visible pieces of a chunk."""
        at, found = int(self.first_piece[chunk]), []
        for piece in range(at, at + int(self.pieces[chunk])):
            entry = int(self.piece_entry[piece])
            first = int(self.seen.first[entry])
            found += [
                Piece(segment=one, start_ms=int(self.piece_start[piece]), end_ms=int(self.piece_end[piece]))
                for one in self.seen.columns.segments[first : first + int(self.seen.count[entry])]
            ]
        return found


def build_layout(segments: Sequence[Segment], policy: TimelinePolicy) -> Layout:
    """Return the layout of a timeline.

    Raises SnapshotRefused for invalid segments, TimelineCorrupt where visibility is ambiguous.
    """
    return _LayoutBuilder(visible(columns(segments)), policy).run()


class _LayoutBuilder:
    """Builds the layout of a timeline; holds intermediate results of several steps."""

    def __init__(self, seen: Visible, policy: TimelinePolicy) -> None:
        self.seen = seen
        self.policy = policy
        self.granularity = policy.granularity
        found = seen.columns
        self.entry_start = found.start[seen.first]
        self.entry_end = found.end[seen.first]
        self.data = ~found.tombstone
        self.size = np.where(found.size == UNKNOWN, policy.segment_bytes_max, found.size)
        self.size[found.tombstone] = 0
        self.weight = self._weights(found)
        if float(self.weight.astype(np.float64).sum()) > SUM_MAX:
            raise SnapshotRefused(f"the sum of the segments exceeds {SUM_MAX} bytes, or the corresponding rows")

    def _weights(self, found: Columns) -> Ints:
        """Return the weight of each segment: its bytes, or more if it has more rows than wanted."""
        most = self.policy.segment_rows_max
        if not most:
            return self.size
        of_rows = [
            min(-(-(one.rows or 0) * self.policy.segment_bytes_max // most), BYTES_MAX) for one in found.segments
        ]
        return np.maximum(self.size, np.array(of_rows, np.int64))

    def run(self) -> Layout:
        seen = self.seen
        unbounded = self._unbounded()
        is_far = unbounded[seen.stretch_entry] if len(seen.stretch_entry) else np.zeros(0, np.bool_)
        self._cut(seen.stretch_entry[~is_far], seen.stretch_start[~is_far], seen.stretch_end[~is_far])
        self.pieces = np.diff(self.first_piece, append=len(self.piece_entry))
        sums = self._sums()
        spanning, prior, later = self._spanning()
        far = np.flatnonzero(is_far)
        return Layout(
            seen=seen,
            start=self.start,
            end=self.end,
            first_piece=self.first_piece,
            pieces=self.pieces,
            piece_entry=self.piece_entry,
            piece_start=self.piece_start,
            piece_end=self.piece_end,
            sums=sums,
            spanning_bytes=spanning,
            prior=prior,
            later=later,
            reaches_start=self._first_of(self.piece_start) == self.start,
            reaches_end=self.piece_end[self.first_piece + self.pieces - 1] == self.end,
            unbounded=self._touched(far),
            digest=self._digests(),
            is_shared_entry=self.is_shared_entry,
            unbounded_keys=tuple(
                key
                for entry in np.flatnonzero(unbounded).tolist()
                for key in seen.columns.key[seen.first[entry] : seen.first[entry] + seen.count[entry]].tolist()
            ),
            latest_end_ms=int(self.piece_end[-1]) if len(self.piece_end) else 0,
        )

    def _unbounded(self) -> Flags:
        """Return for each entry whether it overlaps too many chunks to be cut; no chunks are created."""
        is_far = (self.entry_start <= FOREVER_START_MS) | (self.entry_end >= FOREVER_END_MS)
        if not self.granularity.is_all:
            near = np.flatnonzero(~is_far)
            first = self.granularity.ordinals(self.entry_start[near])
            last = self.granularity.ordinals(self.entry_end[near] - 1)
            is_far[near] = last - first >= CHUNKS_MAX
        return is_far

    def _cut(self, entry: Ints, start: Ints, end: Ints) -> None:
        """Cut visible stretches at chunk borders."""
        if self.granularity.is_all:
            chunk: Ints = np.zeros(len(entry), np.int64)
            chunk[1:] = np.cumsum(start[1:] > end[:-1])
            self.first_piece: Ints = np.flatnonzero(np.diff(chunk, prepend=-1))
            self.start = start[self.first_piece]
            self.end = end[np.append(self.first_piece[1:], len(end)) - 1] if len(end) else end
        else:
            first = self.granularity.ordinals(start)
            counts = self.granularity.ordinals(end - 1) - first + 1
            ordinal = spread(first, counts)
            entry, start, end = (np.repeat(part, counts) for part in (entry, start, end))
            numbers, chunk = _numbered(ordinal)
            self.start = self.granularity.starts(numbers)
            self.end = self.granularity.starts(numbers + 1)
            start, end = np.maximum(start, self.start[chunk]), np.minimum(end, self.end[chunk])
            if not (start < end).all():  # a day that the time zone skipped
                is_real = start < end
                kept = np.unique(chunk[is_real])
                self.start, self.end = self.start[kept], self.end[kept]
                entry, start, end = entry[is_real], start[is_real], end[is_real]
                _, chunk = _numbered(chunk[is_real])
            self.first_piece = np.flatnonzero(np.diff(chunk, prepend=-1))
        self.chunk, self.piece_entry, self.piece_start, self.piece_end = chunk, entry, start, end

    def _first_of(self, of_piece: Ints) -> Ints:
        return np.asarray(of_piece[self.first_piece])

    def _sums(self) -> Sums:
        """Return counts and sizes of each chunk. An entry visible in two pieces of a chunk is counted once."""
        found, seen = self.seen.columns, self.seen
        most = self.policy.segment_bytes_max
        self._part_of_pieces()
        if not len(self.start):
            none, never = np.zeros(0, np.int64), np.zeros(0, np.bool_)
            return Sums(none, none, none, none, none, none, none, never, never)
        entry, at = self.part_entry, self.first_part
        data = np.add.reduceat(self.data.astype(np.int64), seen.first)[entry]
        tombstones = seen.count[entry] - data
        largest = np.maximum.reduceat(self.weight, seen.first)[entry]
        unknown = np.logical_or.reduceat(self.data & (found.size == UNKNOWN), seen.first)[entry]
        self.piece_bytes = self._shares(self.size)
        weighed = self.piece_bytes if self.weight is self.size else self._shares(self.weight)
        whole = np.add.reduceat(self.weight, seen.first)[entry]
        if found.folder is None:
            fit = np.maximum(1, -(-np.add.reduceat(whole, at) // most))
            out = np.maximum(1, -(-np.add.reduceat(weighed, self.first_piece) // most))
        else:
            fit, out = self._by_folder(found.folder)
        sizes = np.maximum.reduceat(largest, at)
        real_largest = (
            sizes
            if self.weight is self.size
            else np.maximum.reduceat(np.maximum.reduceat(self.size, seen.first)[entry], at)
        )
        return Sums(
            segments=np.add.reduceat(data, at),
            tombstones=np.add.reduceat(tombstones, at),
            bytes=np.add.reduceat(self.piece_bytes, self.first_piece),
            fit=fit,
            out=out,
            largest=sizes,
            rank=np.maximum.reduceat(found.rank[seen.first][entry], at),
            is_estimate=np.logical_or.reduceat(unknown, at),
            is_overfull=(sizes > most) & (real_largest <= most),
        )

    def _part_of_pieces(self) -> None:
        """Number each pair of chunk and entry once, ordered by chunk."""
        total = max(len(self.seen.first), 1)
        number = self.chunk * total + self.piece_entry
        self.is_cut = np.zeros(total, np.bool_)  # entries visible in more than one piece
        several = np.bincount(self.piece_entry, minlength=total) > 1
        self.is_cut[:] = several
        if several.any():
            number = np.unique(number)
        self.part_chunk, self.part_entry = number // total, number % total
        self.first_part = np.flatnonzero(np.diff(self.part_chunk, prepend=-1))

    def _shares(self, sizes: Ints) -> Ints:
        """Return the bytes of each piece by its fraction of time; an entry's pieces add up to its size."""
        seen = self.seen
        found = np.add.reduceat(sizes, seen.first)[self.piece_entry]
        partial = self._partial()
        if len(partial):
            rows, places = self._members(partial)
            share = _share(
                sizes[places],
                self.entry_start[self.piece_entry[rows]],
                self.entry_end[self.piece_entry[rows]],
                self.piece_start[rows],
                self.piece_end[rows],
            )
            bounds = np.cumsum(seen.count[self.piece_entry[partial]]) - seen.count[self.piece_entry[partial]]
            found[partial] = np.add.reduceat(share, bounds)
        return np.asarray(found)

    def _partial(self) -> Ints:
        return np.flatnonzero(
            (self.piece_start > self.entry_start[self.piece_entry])
            | (self.piece_end < self.entry_end[self.piece_entry])
        )

    def _members(self, pieces: Ints) -> tuple[Ints, Ints]:
        """Return the piece, and the column index, of each segment of these pieces."""
        entries = self.piece_entry[pieces]
        counts = self.seen.count[entries]
        return np.repeat(pieces, counts), spread(self.seen.first[entries], counts)

    def _by_folder(self, folder: Ints) -> tuple[Ints, Ints]:
        """Return the objects that whole segments and visible bytes need if folders are kept separate."""
        most, folders = self.policy.segment_bytes_max, int(folder.max()) + 1
        counts = self.seen.count[self.part_entry]
        places = spread(self.seen.first[self.part_entry], counts)
        fit = _needed(np.repeat(self.part_chunk, counts), folder, places, self.weight[places], self.data, folders, most)
        rows, places = self._members(np.arange(len(self.piece_entry)))
        entry = self.piece_entry[rows]
        share = _share(
            self.weight[places],
            self.entry_start[entry],
            self.entry_end[entry],
            self.piece_start[rows],
            self.piece_end[rows],
        )
        out = _needed(self.chunk[rows], folder, places, share, self.data, folders, most)
        return _filled(fit, len(self.start)), _filled(out, len(self.start))

    def _spanning(self) -> tuple[Ints, Flags, Flags]:
        """Return each chunk's bytes of spanning segments, and whether any of them extend before or after it."""
        total, chunks = len(self.seen.first), len(self.start)
        spanning, prior, later = np.zeros(chunks, np.int64), np.zeros(chunks, np.bool_), np.zeros(chunks, np.bool_)
        self.is_shared_entry = np.zeros(total, np.bool_)
        cut = np.flatnonzero(self.is_cut[self.part_entry]) if total else np.zeros(0, np.int64)
        if not len(cut):
            return spanning, prior, later
        first, last = np.full(total, chunks), np.full(total, -1)
        np.minimum.at(first, self.part_entry[cut], self.part_chunk[cut])
        np.maximum.at(last, self.part_entry[cut], self.part_chunk[cut])
        self.is_shared_entry = first < last
        has_data = np.add.reduceat(self.data.astype(np.int64), self.seen.first) > 0
        of_data = self.is_shared_entry & has_data
        parts = cut[of_data[self.part_entry[cut]]]
        chunk, entry = self.part_chunk[parts], self.part_entry[parts]
        prior[chunk[chunk > first[entry]]] = True
        later[chunk[chunk < last[entry]]] = True
        pieces = np.flatnonzero(of_data[self.piece_entry])
        np.add.at(spanning, self.chunk[pieces], self.piece_bytes[pieces])
        return spanning, prior, later

    def _touched(self, far: Ints) -> Ints:
        """Return for each chunk the key of an uncut segment that reaches into it, or -1."""
        found = np.full(len(self.start), -1)
        for stretch in far.tolist():
            start, end = int(self.seen.stretch_start[stretch]), int(self.seen.stretch_end[stretch])
            if self.granularity.is_all:
                touched = (self.end >= start) & (self.start <= end)
            else:
                touched = np.zeros(len(self.start), np.bool_)
                touched[np.searchsorted(self.end, start, "right") : np.searchsorted(self.start, end, "left")] = True
            found[touched] = self.seen.columns.key[self.seen.first[self.seen.stretch_entry[stretch]]]
        return found

    def _digests(self) -> Bits:
        found, seen = self.seen.columns, self.seen
        if not len(self.start):
            return np.zeros(0, np.uint64)
        versions = text_hashes(found.versions)
        segments = mixed(found.key, found.partition, found.size, found.tombstone.astype(np.int64))
        entries = mixed(
            np.add.reduceat(segments, seen.first), self.entry_start, self.entry_end, versions[found.rank[seen.first]]
        )
        pieces = mixed(entries[self.piece_entry], self.piece_start, self.piece_end)
        return np.asarray(np.add.reduceat(pieces, self.first_piece))


def _numbered(sorted_values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values of a sorted column, and the index of each row's value."""
    is_new = np.ones(len(sorted_values), np.bool_)
    is_new[1:] = sorted_values[1:] != sorted_values[:-1]
    return sorted_values[is_new], np.cumsum(is_new) - 1


def _share(size: Ints, start: Ints, end: Ints, piece_start: Ints, piece_end: Ints) -> Ints:
    """Return the bytes of pieces of segments, rounded so that all pieces add up to the size."""
    length = end - start
    found = np.zeros(len(size), np.int64)
    is_short = length <= _SAFE_LENGTH_MS
    whole, rest = np.divmod(size[is_short], length[is_short])

    def until(time: Ints) -> Ints:
        into = time[is_short] - start[is_short]
        return np.asarray(whole * into + rest * into // length[is_short])

    found[is_short] = until(piece_end) - until(piece_start)
    for row in np.flatnonzero(~is_short).tolist():
        bytes_, lasts, begin = int(size[row]), int(length[row]), int(start[row])
        upper, lower = int(piece_end[row]) - begin, int(piece_start[row]) - begin
        found[row] = bytes_ * upper // lasts - bytes_ * lower // lasts
    return found


def _needed(
    chunk: Ints, folder: Ints, places: Ints, sizes: Ints, is_data: Flags, folders: int, most: int
) -> tuple[Ints, Ints]:
    """Return chunks and the objects they need: at least one for each folder with data."""
    rows = is_data[places]
    number = chunk[rows] * folders + folder[places[rows]]
    order = np.argsort(number, kind="stable")
    cells, which = _numbered(number[order])
    if not len(cells):
        return cells, cells
    sums = np.add.reduceat(sizes[rows][order], np.flatnonzero(np.diff(which, prepend=-1)))
    chunks, of_chunk = _numbered(cells // folders)
    needed = np.maximum(1, -(-sums // most))
    return chunks, np.add.reduceat(needed, np.flatnonzero(np.diff(of_chunk, prepend=-1)))


def _filled(found: tuple[Ints, Ints], total: int) -> Ints:
    values = np.ones(total, np.int64)
    values[found[0]] = found[1]
    return values
