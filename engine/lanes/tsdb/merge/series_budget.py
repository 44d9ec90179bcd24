"""Memory limits of one series in a merge, whose chunks are written together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.chunks.chunk_files import (
    CHUNK_BYTES_MAX,
    OFFSET_BITS,
    chunk_place,
    file_name,
    record_bytes,
)
from engine.formats.prometheus.index.series_batch import SeriesBatch

BUDGET_BYTES = 512 << 20
"""The default budget of a merge."""
CHUNK_BYTES = 64
"""Memory of a chunk besides its record."""
RECORD_BYTES_MAX = CHUNK_BYTES_MAX + 16


class SeriesBudget(NamedTuple):
    """Limits of one series. ``record_bytes`` bounds its chunks in each source, in all sources, and those encoded again.

    ``values`` bounds the numbers of individually decoded samples (some tens of bytes each). ``window_samples`` bounds
    the samples that the compiled merge decodes at once, plus those of one more chunk.
    """

    record_bytes: int
    values: int
    window_samples: int


def series_budget(budget_bytes: int) -> SeriesBudget:
    """Return the limits of a series: an eighth of the budget for records, of which up to four copies exist."""
    return SeriesBudget(budget_bytes // 8, budget_bytes // 128, max(budget_bytes // (16 << 10), 1))


def refuse_long_series(batch: SeriesBatch, files: Sequence[memoryview], budget: SeriesBudget) -> None:
    """Raise LimitExceeded at the chunk at which a series exceeds the memory limit.

    ``files`` are the block's chunk files. Invalid and descending references are checked elsewhere.
    """
    refs, starts = batch.chunk_refs, batch.chunk_starts
    if not len(refs):
        return
    numbers = (refs >> np.uint64(OFFSET_BITS)).astype(np.int64)
    ends = np.array([len(file) for file in files] or [0], np.uint64)[np.minimum(numbers, len(files) - 1)]
    ends |= numbers.astype(np.uint64) << np.uint64(OFFSET_BITS)
    # A record ends at the latest where the next one of its file begins.
    ends[:-1] = np.where(numbers[1:] == numbers[:-1], refs[1:], ends[:-1])
    widths = np.minimum(ends - refs, np.uint64(RECORD_BYTES_MAX)).astype(np.int64) + CHUNK_BYTES
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(widths)])
    for series in np.flatnonzero(sums[starts[1:]] - sums[starts[:-1]] > budget.record_bytes).tolist():
        held = 0
        for ref in refs[starts[series] : starts[series + 1]].tolist():
            number, offset = chunk_place(ref)
            held += CHUNK_BYTES + (record_bytes(files[number], number, offset) if number < len(files) else 0)
            refuse_record(held, ref, budget)


def refuse_record(held: int, ref: int, budget: SeriesBudget) -> None:
    """Raise LimitExceeded if the chunks of a series up to this one exceed the memory limit."""
    if held > budget.record_bytes:
        number, offset = chunk_place(ref)
        raise LimitExceeded(file_name(number), offset, "the chunks of a series exceed the memory limit of a series")
