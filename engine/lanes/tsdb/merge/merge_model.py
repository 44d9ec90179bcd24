"""What a merge of Prometheus blocks takes and gives.

A merge of blocks is the union of their series, and of each series' samples by time. Chunks that overlap no different
chunk of their series are copied as they are; where chunks overlap their samples are merged and cut anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.core.errors import MergeRefused
from engine.formats.prometheus.chunks.chunk_writer import FILE_BYTES
from engine.formats.prometheus.meta import BlockMeta
from engine.formats.prometheus.model import Chunk

SAMPLES_PER_CHUNK = 120
SAMPLES_PER_CHUNK_MAX = 65_535


class Winner(StrEnum):
    """Which of several samples of one series and time stays.

    ``OURS``: the greatest, in an order of all values in which the end of a series is least, then NaN, then numbers,
    then histograms; whatever is merged with what, and in which order, the same samples come out. ``PROMETHEUS``: the
    one that Prometheus would keep, which depends on where chunks and gaps lie.
    """

    OURS = "ours"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How blocks are merged; the same rules and sources give the same bytes.

    ``samples_per_chunk`` is the most samples of a chunk that is cut anew, ``chunk_file_bytes`` where a chunk file ends.
    ``label_indices`` writes what programs of 2023 and before write into an index and nobody reads.
    """

    winner: Winner = Winner.OURS
    samples_per_chunk: int = SAMPLES_PER_CHUNK
    chunk_file_bytes: int = FILE_BYTES
    label_indices: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.samples_per_chunk <= SAMPLES_PER_CHUNK_MAX:
            raise MergeRefused(f"{self.samples_per_chunk} samples a chunk, at most {SAMPLES_PER_CHUNK_MAX}")


@dataclass(frozen=True, slots=True)
class Partition:
    """The series whose hash leaves ``index`` when divided by ``count``; those of a multiple of ``count`` lie inside."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count < 1 << 32:
            raise MergeRefused(f"there is no partition {self.index} of {self.count}")

    @property
    def is_whole(self) -> bool:
        """Say whether every series belongs to it."""
        return self.count == 1


@dataclass(slots=True)
class MergeCounts:
    """What was read and what was written."""

    series_read: int = 0
    chunks_read: int = 0
    samples_read: int = 0
    bytes_read: int = 0
    series_written: int = 0
    chunks_written: int = 0
    samples_written: int = 0
    float_samples_written: int = 0


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What came of a merge. ``meta`` is None if nothing was left: then there is no block.

    ``counts.bytes_read`` are those of the sources' indexes and chunk records that were read.
    """

    meta: BlockMeta | None
    counts: MergeCounts

    @property
    def samples_dropped(self) -> int:
        """Return how many samples were read and not written: second copies, losers of a conflict, deleted ones."""
        return self.counts.samples_read - self.counts.samples_written


class StoredChunk(NamedTuple):
    """A chunk of a series by itself: first and last sample's time (closed) and its record."""

    min_time_ms: int
    max_time_ms: int
    chunk: Chunk
