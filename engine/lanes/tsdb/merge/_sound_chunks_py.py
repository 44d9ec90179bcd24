"""Pure Python reference implementation of the check of float chunks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.core.errors import BadObject
from engine.formats.prometheus.chunks.chunk_files import chunk_place, read_chunk
from engine.formats.prometheus.chunks.xor import decode_xor
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.model import ENCODING_XOR


def sound_float_chunks(files: Sequence[memoryview], batch: SeriesBatch, first: int) -> tuple[int, int]:
    """Return the end of the run of valid float chunks from ``first`` on, and its number of samples.

    A valid chunk has encoding 1, a readable record and readable samples, ascending times, and the first and last time
    of the index. The chunk that ends the run may have another encoding; the caller checks it.
    """
    samples = 0
    times = (batch.min_times.tolist(), batch.max_times.tolist())
    for position, ref in enumerate(batch.chunk_refs[first:].tolist(), first):
        number, offset = chunk_place(ref)
        if number >= len(files):
            return position, samples
        try:
            chunk = read_chunk(files[number], number, offset)
            if chunk.encoding != ENCODING_XOR:
                return position, samples
            found, _ = decode_xor(chunk.data)
        except BadObject:
            return position, samples
        ends = (int(found[0]), int(found[-1]))
        if ends != (times[0][position], times[1][position]) or np.any(found[1:] <= found[:-1]):
            return position, samples
        samples += len(found)
    return len(batch.chunk_refs), samples
