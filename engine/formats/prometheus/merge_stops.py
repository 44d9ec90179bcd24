"""Types that the merge of blocks exchanges with its compiled part."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from engine.formats.prometheus.index.series_batch import SeriesBatch

OVERLAY_FILE = (1 << 32) - 1
"""Chunk file number of records that are not in a file of the block: the merge made them for a batch of series."""


class MergeStop(IntEnum):
    """Why a merge of series stopped: a source needs its next batch, a batch is full, a series needs pure Python."""

    NEEDS = 0
    FULL = 1
    PLAIN = 2
    DONE = 3


class MergedSeries(NamedTuple):
    """Merged series and the records of their chunks, which are valid until the merge continues.

    ``file_starts`` are the offsets in ``records`` at which a new chunk file begins; references account for them.
    """

    batch: SeriesBatch
    records: memoryview
    file_starts: list[int]
