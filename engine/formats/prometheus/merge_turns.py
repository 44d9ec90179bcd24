"""What passes between a merge of blocks and the part of it that is compiled."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from engine.formats.prometheus.index.series_batch import SeriesBatch

OVERLAY_FILE = (1 << 32) - 1
"""The chunk file number of what is not in the block: records that were made for a batch of its series."""


class Turn(IntEnum):
    """Why a merge of series stopped: a source needs its next batch, there is enough to write, a series is rare."""

    NEEDS = 0
    FULL = 1
    PLAIN = 2
    DONE = 3


class MergedSeries(NamedTuple):
    """Series that were merged, and the records of their chunks, which stay only until the merge goes on.

    ``file_starts`` are the places in ``records`` before which a new chunk file begins; references count with them.
    """

    batch: SeriesBatch
    records: memoryview
    file_starts: list[int]
