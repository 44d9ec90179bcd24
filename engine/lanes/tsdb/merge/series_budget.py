"""What one series of a merge may take of the memory of the whole: its chunks are written together."""

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
"""The budget of whoever was given none."""
CHUNK_BYTES = 64
"""What is held of a chunk beside its record."""
RECORD_BYTES_MAX = CHUNK_BYTES_MAX + 16


class SeriesBudget(NamedTuple):
    """``record_bytes`` bounds the chunks of a series, those of each source, of all, and what is encoded anew.

    ``values`` bounds the numbers of samples that are decoded one by one: some tens of bytes each. So are the
    ``window_samples`` that the compiled merge decodes at once, with those of one chunk more.
    """

    record_bytes: int
    values: int
    window_samples: int


def series_budget(budget_bytes: int) -> SeriesBudget:
    """Return what of a merge's budget is a series': an eighth for records, which are there up to four times."""
    return SeriesBudget(budget_bytes // 8, budget_bytes // 128, max(budget_bytes // (16 << 10), 1))


def refuse_long_series(batch: SeriesBatch, files: Sequence[memoryview], budget: SeriesBudget) -> None:
    """Raise LimitExceeded at the chunk with which a series takes more than a merge may hold of it.

    ``files`` are the block's chunk files. References that do not ascend, or lead nowhere, others refuse.
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
    """Raise LimitExceeded if the chunks of a series up to this one take more than a merge may hold of it."""
    if held > budget.record_bytes:
        number, offset = chunk_place(ref)
        raise LimitExceeded(file_name(number), offset, "the chunks of a series take more than a merge holds of one")
