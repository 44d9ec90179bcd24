"""Batches of series as arrays, without a Python object per series, label or chunk; results of merging them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.formats.prometheus.model import ChunkMeta


class SeriesBatch(NamedTuple):
    """Series in the order of the index; series ``i`` has labels ``label_starts[i]`` up to ``label_starts[i + 1]``.

    ``label_refs`` are pairs of symbol numbers, name and value; ``chunk_starts`` are indexes of the three arrays after
    it. ``next_position`` is the position in the file of the next entry's padding.
    """

    next_position: int
    ids: npt.NDArray[np.uint32]
    label_starts: npt.NDArray[np.int64]
    label_refs: npt.NDArray[np.uint32]
    chunk_starts: npt.NDArray[np.int64]
    min_times: npt.NDArray[np.int64]
    max_times: npt.NDArray[np.int64]
    chunk_refs: npt.NDArray[np.uint64]

    def label_refs_of(self, position: int) -> tuple[int, ...]:
        """Return the symbol numbers of a series' labels: name, value, name, value …"""
        first, last = int(self.label_starts[position]), int(self.label_starts[position + 1])
        return tuple(self.label_refs[2 * first : 2 * last].tolist())


def series_batch(rows: Iterable[tuple[Sequence[int], Sequence[ChunkMeta]]]) -> SeriesBatch:
    """Return a batch of rows (alternating symbol numbers of names and values, chunks); all ids are 0."""
    label_refs, chunks = array("I"), list[ChunkMeta]()
    label_starts, chunk_starts = [0], [0]
    for refs, series_chunks in rows:
        label_refs.extend(refs)
        chunks.extend(series_chunks)
        label_starts.append(len(label_refs) // 2)
        chunk_starts.append(len(chunks))
    return SeriesBatch(
        next_position=0,
        ids=np.zeros(len(label_starts) - 1, np.uint32),
        label_starts=np.array(label_starts, np.int64),
        label_refs=np.array(label_refs, np.uint32),
        chunk_starts=np.array(chunk_starts, np.int64),
        min_times=np.array([chunk.min_time_ms for chunk in chunks], np.int64),
        max_times=np.array([chunk.max_time_ms for chunk in chunks], np.int64),
        chunk_refs=np.array([chunk.ref for chunk in chunks], np.uint64),
    )


def select_series(batch: SeriesBatch, is_chosen: npt.NDArray[np.bool_]) -> SeriesBatch:
    """Return a batch of the selected series, with the same ``next_position``."""
    labels, chunks = np.diff(batch.label_starts), np.diff(batch.chunk_starts)
    has_chunk = np.repeat(is_chosen, chunks)
    return SeriesBatch(
        next_position=batch.next_position,
        ids=batch.ids[is_chosen],
        label_starts=_starts(labels[is_chosen]),
        label_refs=batch.label_refs[np.repeat(is_chosen, 2 * labels)],
        chunk_starts=_starts(chunks[is_chosen]),
        min_times=batch.min_times[has_chunk],
        max_times=batch.max_times[has_chunk],
        chunk_refs=batch.chunk_refs[has_chunk],
    )


def _starts(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
