"""Inputs and outputs of a merge of Prometheus blocks, and the metadata of its result.

A merge is the union of the blocks' series, and of each series' samples by time. Chunks that overlap no different chunk
of their series are copied; samples of overlapping chunks are merged and cut into new chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from engine.core.errors import MergeRefused
from engine.formats.prometheus.chunks.chunk_writer import FILE_BYTES
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction, ParentBlock
from engine.formats.prometheus.model import Chunk

SAMPLES_PER_CHUNK = 120
SAMPLES_PER_CHUNK_MAX = 65_535


HINT_OF_ALL = "from-out-of-order"
"""A result has this hint only if all sources have it; it has other hints if any source has them."""


class Winner(StrEnum):
    """Which of several samples of one series and time is kept.

    ``OURS``: the greatest in a total order of all values: stale markers, NaN, numbers, histograms. The result does not
    depend on how merges are combined. ``PROMETHEUS``: the sample that Prometheus would keep, which depends on the
    positions of chunks and gaps.
    """

    OURS = "ours"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How blocks are merged; equal rules and sources give equal bytes.

    ``samples_per_chunk`` limits chunks that are cut again, ``chunk_file_bytes`` the size of chunk files.
    ``label_indices`` writes the index section that Prometheus wrote until 2023 and no reader uses.
    """

    winner: Winner = Winner.OURS
    samples_per_chunk: int = SAMPLES_PER_CHUNK
    chunk_file_bytes: int = FILE_BYTES
    label_indices: bool = True

    def __post_init__(self) -> None:
        if not 0 < self.samples_per_chunk <= SAMPLES_PER_CHUNK_MAX:
            raise MergeRefused(f"samples_per_chunk of {self.samples_per_chunk} is outside 1 to {SAMPLES_PER_CHUNK_MAX}")


@dataclass(frozen=True, slots=True)
class Partition:
    """The series whose hash modulo ``count`` is ``index``. Partitions of a multiple of ``count`` are subsets."""

    index: int = 0
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count < 1 << 32:
            raise MergeRefused(f"there is no partition {self.index} of {self.count}")

    @property
    def is_whole(self) -> bool:
        """Return whether every series belongs to it."""
        return self.count == 1


@dataclass(slots=True)
class MergeCounts:
    """Counts of read and written items."""

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
    """The outcome of a merge. ``meta`` is None if no sample was left and no block was written.

    ``counts.bytes_read`` counts the bytes of the sources' indexes and of the chunk records read.
    """

    meta: BlockMeta | None
    counts: MergeCounts

    @property
    def samples_dropped(self) -> int:
        """Return the number of samples read and not written: duplicates, losers of conflicts, deleted samples."""
        return self.counts.samples_read - self.counts.samples_written


class StoredChunk(NamedTuple):
    """A chunk of a series: times of its first and last sample (both inclusive), and its record."""

    min_time_ms: int
    max_time_ms: int
    chunk: Chunk


def merged_meta(ulid: str, sources: Sequence[BlockMeta], *, is_part: bool = False) -> BlockMeta:
    """Return the metadata of a merge's result, without statistics.

    ``is_part``: the result holds one partition of the sources' series. A single block that is rewritten whole starts
    over at level 1, as its own source.
    """
    is_rewrite = len(sources) == 1 and not is_part
    # A block without sources is its own source.
    own = [source.compaction.sources or (source.ulid,) for source in sources]
    ancestors = {ulid} if is_rewrite else {each for sources_of in own for each in sources_of}
    hints = [set(source.compaction.hints) for source in sources]
    kept = {hint for each in hints for hint in each if hint != HINT_OF_ALL or all(hint in other for other in hints)}
    return BlockMeta(
        ulid=ulid,
        min_time_ms=min(source.min_time_ms for source in sources),
        max_time_ms=max(source.max_time_ms for source in sources),
        stats=BlockStats(),
        compaction=Compaction(
            level=1 if is_rewrite else 1 + max(source.compaction.level for source in sources),
            sources=tuple(sorted(ancestors)),
            parents=tuple(ParentBlock(source.ulid, source.min_time_ms, source.max_time_ms) for source in sources),
            hints=tuple(sorted(kept)),
        ),
    )
