"""External sort of labels: from the order of series to that of name and value.

When a number of labels is held in memory, they are sorted and spilled to a temporary file as a run, so that memory use
does not grow with the series. As series ids ascend, the list of a label is the concatenation of its parts of the runs.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.formats.prometheus.index.postings_lists import grouped_ids
from engine.formats.prometheus.index.series_batch import SeriesBatch

LABELS_HELD_MAX = 1 << 18
WINDOW_PIECES = 1 << 19
"""Pieces of lists that are merged together, over all runs."""
WINDOW_PIECES_MIN = 64
READ_BYTES = 1 << 20

Pairs = npt.NDArray[np.uint64]
"""Symbol numbers of name (upper 32 bits) and value (lower 32 bits)."""


class Pieces(NamedTuple):
    """Pieces of lists, sorted by pair, then by id. ``places`` are the positions of their ids, four bytes each."""

    pairs: Pairs
    counts: npt.NDArray[np.uint32]
    places: npt.NDArray[np.int64]

    def part(self, first: int, last: int) -> Pieces:
        """Return the pieces from ``first`` up to ``last``."""
        return Pieces(self.pairs[first:last], self.counts[first:last], self.places[first:last])


@dataclass(slots=True)
class _Run:
    """The unread rest of a sorted run: the positions of its pairs, counts and ids."""

    pairs_at: int
    counts_at: int
    ids_at: int
    left: int


class PostingsSpill:
    """Accepts the labels of series in order and yields postings by label. ``close`` removes the temporary files."""

    def __init__(self, folder: Path, labels_held: int = LABELS_HELD_MAX) -> None:
        self._held = labels_held
        self._pairs: list[Pairs] = []
        self._ids: list[npt.NDArray[np.uint32]] = []
        self._count = 0
        self._runs: list[_Run] = []
        self._file, self._all = (tempfile.TemporaryFile(dir=folder) for _ in range(2))  # noqa: SIM115
        self._size = 0
        self._series = 0

    def add(self, batch: SeriesBatch, ids: npt.NDArray[np.uint32]) -> None:
        """Add the labels of a batch of series with the given ids."""
        self._all.write(ids.astype(">u4").tobytes())
        self._series += len(ids)
        names, values = batch.label_refs[::2], batch.label_refs[1::2]
        pairs = names.astype(np.uint64) << np.uint64(32) | values
        owners = np.repeat(ids, np.diff(batch.label_starts))
        while len(pairs):
            room = self._held - self._count
            self._pairs.append(pairs[:room])
            self._ids.append(owners[:room])
            self._count += len(self._pairs[-1])
            pairs, owners = pairs[room:], owners[room:]
            if self._count == self._held:
                self._spill()

    def all_ids(self) -> Iterator[bytes]:
        """Yield the ids of all series, four bytes each."""
        for place in range(0, 4 * self._series, READ_BYTES):
            self._all.flush()
            yield os.pread(self._all.fileno(), READ_BYTES, place)

    def pieces(self) -> Iterator[Pieces]:
        """Yield the pieces of all lists in order of pairs; all pieces of a list are in the same item."""
        if self._count:
            self._spill()
        self._file.flush()
        runs = [_Run(run.pairs_at, run.counts_at, run.ids_at, run.left) for run in self._runs]
        most = max(WINDOW_PIECES_MIN, WINDOW_PIECES // max(len(runs), 1))
        while runs:
            windows = [self._window(run, min(run.left, most)) for run in runs]
            # Pairs after the end of a window may still occur in the rest of that run.
            ends = [int(pairs[-1]) for run, (pairs, _) in zip(runs, windows, strict=True) if len(pairs) < run.left]
            end = min(ends, default=None)
            parts = [self._part(run, *window, end) for run, window in zip(runs, windows, strict=True)]
            pairs, counts, places = (np.concatenate(column) for column in zip(*parts, strict=True))
            order = np.argsort(pairs, kind="stable")
            yield Pieces(pairs[order], counts[order], places[order])
            runs = [run for run in runs if run.left]

    def ids(self, place: int, count: int) -> bytes:
        """Return the bytes of ``count`` spilled ids."""
        return os.pread(self._file.fileno(), 4 * count, place)

    def close(self) -> None:
        """Remove the temporary files."""
        self._file.close()
        self._all.close()

    def _spill(self) -> None:
        pairs, counts, ids = grouped_ids(np.concatenate(self._pairs), np.concatenate(self._ids))
        self._pairs, self._ids, self._count = [], [], 0
        pairs_at, counts_at, ids_at = (self._write(data) for data in (pairs.tobytes(), counts.tobytes(), ids))
        self._runs.append(_Run(pairs_at, counts_at, ids_at, len(pairs)))

    def _write(self, data: bytes) -> int:
        place = self._size
        self._file.write(data)
        self._size += len(data)
        return place

    def _window(self, run: _Run, most: int) -> tuple[Pairs, npt.NDArray[np.uint32]]:
        pairs = np.frombuffer(os.pread(self._file.fileno(), 8 * most, run.pairs_at), np.uint64)
        return pairs, np.frombuffer(os.pread(self._file.fileno(), 4 * most, run.counts_at), np.uint32)

    def _part(self, run: _Run, pairs: Pairs, counts: npt.NDArray[np.uint32], end: int | None) -> Pieces:
        """Remove the pieces up to the pair ``end`` from the front of a run and return them."""
        taken = len(pairs) if end is None else int(np.searchsorted(pairs, np.uint64(end), "right"))
        after = np.cumsum(counts[:taken], dtype=np.int64)
        places = run.ids_at + 4 * (after - counts[:taken])
        run.pairs_at += 8 * taken
        run.counts_at += 4 * taken
        run.ids_at += 4 * int(after[-1]) if taken else 0
        run.left -= taken
        return Pieces(pairs[:taken], counts[:taken], places)
