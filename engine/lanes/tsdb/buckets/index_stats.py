"""Measure the largest series entry and chunk of a block, which readers use to choose their read-ahead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.index.index_layout import SERIES_ALIGNMENT
from engine.lanes.tsdb.buckets.sections import CHUNKS, IndexStats

OFFSET_MASK = np.uint64((1 << 32) - 1)
FILE_SHIFT = np.uint64(32)


def measure_index(folder: Path) -> IndexStats:
    """Return the largest sizes in a block in bytes, for series up to 15 too large.

    A size is the distance to the next entry, so one pass over the index is enough. Chunks are expected in the order of
    series, as all writers store them; other orders only make the result larger. Raises BadObject for a damaged block.
    """
    sizes = [path.stat().st_size for path in sorted((folder / CHUNKS).iterdir())]
    series_max = chunk_max = 0
    last = np.zeros(0, np.uint64)
    for batch in BlockReader(folder).index.batches():
        starts = batch.ids.astype(np.int64) * SERIES_ALIGNMENT
        series_max = max(series_max, int(np.diff(np.append(starts, batch.next_position)).max(initial=0)))
        refs = np.concatenate([last, batch.chunk_refs])
        chunk_max = max(chunk_max, _largest(refs[:-1], refs[1:], sizes))
        last = refs[-1:]
    return IndexStats(series_max_size=series_max, chunk_max_size=max(chunk_max, _largest(last, last, sizes)))


def _largest(refs: npt.NDArray[np.uint64], following: npt.NDArray[np.uint64], sizes: list[int]) -> int:
    """Return the largest distance from a chunk to the next one in its file, or to the end of the file."""
    if not len(refs):
        return 0
    files, next_files = refs >> FILE_SHIFT, following >> FILE_SHIFT
    starts = (refs & OFFSET_MASK).astype(np.int64)
    file_ends = np.array(sizes, np.int64)[np.minimum(files, len(sizes) - 1).astype(np.int64)]
    is_followed = (files == next_files) & (following > refs)
    ends = np.where(is_followed, (following & OFFSET_MASK).astype(np.int64), file_ends)
    return int((ends - starts).max(initial=0))
