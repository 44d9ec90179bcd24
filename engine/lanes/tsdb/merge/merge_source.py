"""A block as a source of a merge: its series without deleted samples, with the symbol numbers of the result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject
from engine.formats.prometheus.block_reader import META, BlockReader
from engine.formats.prometheus.chunks.chunk_files import CRC_BYTES, HEADER_BYTES, OFFSET_BITS, chunk_place, file_name
from engine.formats.prometheus.chunks.histograms import encode_histograms
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.errors import Inconsistent, OnlyCopied, OutOfOrder
from engine.formats.prometheus.index.series_batch import SeriesBatch, select_series, series_batch
from engine.formats.prometheus.index.symbol_union import check_symbol_budget
from engine.formats.prometheus.merge_stops import OVERLAY_FILE
from engine.formats.prometheus.model import ENCODING_XOR, HISTOGRAM_ENCODINGS, Chunk, ChunkMeta
from engine.formats.prometheus.tombstones import Interval
from engine.lanes.tsdb.merge.merge_model import Partition
from engine.lanes.tsdb.merge.partitions import check_partition_members, claimed_partition, series_in_partition

BATCH_SERIES = 1024
BATCH_CHUNKS = 8192
"""Chunks of a batch of series, which are mapped at once: some megabytes."""
Used = npt.NDArray[np.bool_]


class MergeSource:
    """A block opened for a merge. Methods raise a BadObject that names the block if it is invalid."""

    def __init__(self, folder: Path, partition: Partition, forget_bytes: int) -> None:
        self.block = BlockReader(folder, forget_bytes)
        self.name = self.block.name
        self.meta = self.block.meta
        self.samples_deleted = self.series_left_out = 0
        self._partition = partition
        stats = self.meta.stats
        self._batch_series = max(1, min(BATCH_SERIES, BATCH_CHUNKS * stats.num_series // max(stats.num_chunks, 1)))
        if self.meta.ulid != self.name:
            raise Inconsistent(META, -1, f"the ULID {self.meta.ulid} is not the folder's name", self.name)
        try:
            self._claimed = claimed_partition(self.meta)
        except BadObject as error:
            raise error.in_object(self.name) from error
        self._deleted = np.fromiter(self.block.tombstones.series_ids(), np.uint64)

    @property
    def series_bytes(self) -> int:
        """Return the length of the series section in bytes."""
        contents = self.block.index.contents
        return contents.label_indices - contents.series

    def position_of(self, batch: SeriesBatch) -> int:
        """Return the bytes of the series section up to the end of a batch."""
        return batch.next_position - self.block.index.contents.series

    def check_symbol_budget(self, budget_bytes: int) -> None:
        """Raise LimitExceeded if this block's symbols alone exceed the budget of the merge."""
        try:
            check_symbol_budget(self.block.index.symbols, budget_bytes)
        except BadObject as error:
            raise error.in_object(self.name) from error

    def used_symbols(self) -> Used:
        """Return for each symbol whether a series of the partition uses it."""
        used = np.zeros(len(self.block.index.symbols), np.bool_)
        for batch in self._batches():
            used[batch.label_refs] = True
        return used

    def series(self, translation: npt.NDArray[np.uint32]) -> Iterator[tuple[SeriesBatch, bytes]]:
        """Yield batches of series with chunks, symbols translated, and records of chunks without deleted samples."""
        last_ref = -1
        for batch in self._batches():
            self._check_times(batch)
            last_ref = self._check_refs(batch, last_ref)
            overlay = b""
            if len(self._deleted) and np.any(np.isin(batch.ids, self._deleted)):
                batch, overlay = self._without_deleted(batch)
            if not np.all(has_chunks := np.diff(batch.chunk_starts) > 0):
                self.series_left_out += int(np.count_nonzero(~has_chunks))
                batch = select_series(batch, has_chunks)
            # The reader has checked each reference against the number of symbols.
            yield batch._replace(label_refs=translation.take(batch.label_refs, mode="clip")), overlay

    def _batches(self) -> Iterator[SeriesBatch]:
        """Yield the series of the partition. Raises Inconsistent at the end if the block's counts are wrong."""
        series = chunks = 0
        try:
            for batch in self.block.index.batches(self._batch_series):
                series += len(batch.ids)
                chunks += len(batch.chunk_refs)
                if self._partition.is_whole:
                    yield batch
                else:
                    partitions = (self._partition, self._claimed)
                    chosen, belongs = series_in_partition(batch, self.block.index.symbols, *partitions)
                    check_partition_members(batch, belongs, self._claimed)
                    yield select_series(batch, chosen)
            stats = self.meta.stats
            if (stated := (stats.num_series, stats.num_chunks)) != (series, chunks):
                reason = f"{stated} series and chunks in the statistics, {(series, chunks)} in the block"
                raise Inconsistent(META, -1, reason)
        except BadObject as error:
            raise error.in_object(self.name) from error

    def _check_times(self, batch: SeriesBatch) -> None:
        low, high = self.meta.min_time_ms, self.meta.max_time_ms
        if len(batch.min_times) and (batch.min_times.min() < low or batch.max_times.max() >= high):
            first = int(np.argmax((batch.min_times < low) | (batch.max_times >= high)))
            number, offset = chunk_place(int(batch.chunk_refs[first]))
            times = f"from {batch.min_times[first]} to {batch.max_times[first]}"
            reason = f"a chunk {times}, the block is from {low} up to {high}"
            raise Inconsistent(file_name(number), offset, reason, self.name)

    def _check_refs(self, batch: SeriesBatch, before: int) -> int:
        """Check that chunk references ascend: shared bytes would let a result grow without bound."""
        refs = batch.chunk_refs
        if not len(refs):
            return before
        first = int(refs[0])
        if first <= before or not np.all(refs[1:] > refs[:-1]):
            number, offset = chunk_place(first if first <= before else int(refs[np.argmax(refs[1:] <= refs[:-1]) + 1]))
            raise OutOfOrder(file_name(number), offset, "chunk references do not ascend", self.name)
        return int(refs[-1])

    def _without_deleted(self, batch: SeriesBatch) -> tuple[SeriesBatch, bytes]:
        records = bytearray(HEADER_BYTES)
        rows = []
        for position, series_id in enumerate(batch.ids.tolist()):
            first, last = (int(batch.chunk_starts[position + step]) for step in (0, 1))
            columns = (batch.min_times, batch.max_times, batch.chunk_refs)
            metas = list(map(ChunkMeta, *(column[first:last].tolist() for column in columns)))
            if intervals := self.block.tombstones.intervals(series_id):
                metas = list(self._remaining(metas, intervals, records))
            rows.append((batch.label_refs_of(position), metas))
        left = series_batch(rows)
        return left._replace(next_position=batch.next_position, ids=batch.ids), bytes(records)

    def _remaining(
        self, metas: Sequence[ChunkMeta], intervals: Sequence[Interval], records: bytearray
    ) -> Iterator[ChunkMeta]:
        """Yield the chunks of a series; chunks with deleted samples are encoded into ``records``."""
        for meta in metas:
            if not any(start <= meta.max_time_ms and meta.min_time_ms <= end for start, end in intervals):
                yield meta
                continue
            chunk = self.block.chunk(meta)
            left = self._without(meta, chunk, intervals)
            self.samples_deleted += chunk.sample_count - (left[0].sample_count if left else 0)
            if left:
                chunk, start, end = left
                ref = OVERLAY_FILE << OFFSET_BITS | len(records)
                sealed = bytes([chunk.encoding]) + chunk.data
                records += encode_uvarint(len(chunk.data)) + sealed + crc32c(sealed).to_bytes(CRC_BYTES, "big")
                yield ChunkMeta(start, end, ref)

    def _without(self, meta: ChunkMeta, chunk: Chunk, intervals: Sequence[Interval]) -> tuple[Chunk, int, int] | None:
        """Return the rest of a chunk and its first and last time, None if all samples are deleted."""
        if chunk.encoding == ENCODING_XOR:
            times, bits = self.block.floats(meta, chunk)
            stays = np.ones(len(times), np.bool_)
            for start, end in intervals:
                stays &= (times < start) | (times > end)
            if not np.any(stays):
                return None
            times, bits = times[stays], bits[stays]
            return Chunk(chunk.encoding, encode_xor(times, bits)), int(times[0]), int(times[-1])
        if chunk.encoding not in HISTOGRAM_ENCODINGS:
            number, offset = chunk_place(meta.ref)
            reason = f"samples are deleted from a chunk of encoding {chunk.encoding}, which can only be copied"
            raise OnlyCopied(file_name(number), offset, reason, self.name)
        found = self.block.histograms(meta, chunk)
        samples = tuple(
            sample for sample in found.samples if not any(start <= sample.time_ms <= end for start, end in intervals)
        )
        if not samples:
            return None
        data = encode_histograms(replace(found, samples=samples))
        return Chunk(chunk.encoding, data), samples[0].time_ms, samples[-1].time_ms
