"""Verify a whole block, including consistency between its parts that no checksum covers.

Series are read once, in order; memory is bounded by the symbols and two postings lists. Postings are compared with the
series by sums of hashes under random keys drawn at process start: equal multisets have equal sums, different ones
almost never, and a block cannot be crafted against unknown keys.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from itertools import groupby, zip_longest
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject, BadReference
from engine.formats.prometheus.block_reader import META, TOMBSTONES, BlockReader
from engine.formats.prometheus.chunks.chunk_files import chunk_place, file_name
from engine.formats.prometheus.errors import Inconsistent, OnlyCopied, OutOfOrder
from engine.formats.prometheus.index.index_layout import SECTION
from engine.formats.prometheus.index.index_reader import ALL_POSTINGS, Numbers, PostingsList
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.symbol_union import check_symbol_budget
from engine.formats.prometheus.model import (
    COUNT_BYTES,
    DECODED_ENCODINGS,
    ENCODING_XOR,
    FLOAT_ENCODINGS,
    HISTOGRAM_ENCODINGS,
    UINT64_MASK,
    ChunkMeta,
)
from engine.lanes.tsdb.merge.partitions import check_partition_members, claimed_partition, series_in_partition
from engine.lanes.tsdb.merge.series_budget import BUDGET_BYTES, SeriesBudget, refuse_long_series, series_budget
from engine.lanes.tsdb.merge.sound_chunks import sound_float_chunks

Words = npt.NDArray[np.uint64]


@dataclass(slots=True)
class BlockCounts:
    """The counts of a valid block."""

    series: int = 0
    chunks: int = 0
    samples: int = 0
    float_samples: int = 0
    histogram_samples: int = 0
    postings_lists: int = 0
    tombstones: int = 0


def verify_block(folder: Path, *, budget_bytes: int = BUDGET_BYTES, is_merged_by_time: bool = False) -> BlockCounts:
    """Return the counts of a block. Raises a BadObject that names file and offset if the block is invalid.

    Blocks that a merge with ``budget_bytes`` refuses are invalid too; with ``is_merged_by_time`` also blocks with
    chunks of encodings that can only be copied, whose samples cannot be merged with those of other blocks.
    """
    block = BlockReader(folder)
    try:
        check_symbol_budget(block.index.symbols, budget_bytes)
        return _Verification(block, series_budget(budget_bytes), is_merged_by_time).run()
    except BadObject as error:
        raise error.in_object(block.name) from error


class _Verification:
    def __init__(self, block: BlockReader, budget: SeriesBudget, is_merged_by_time: bool) -> None:
        self._block = block
        self._budget = budget
        self._is_merged_by_time = is_merged_by_time
        self._deleted = np.fromiter(block.tombstones.series_ids(), np.uint64)
        self._counts = BlockCounts(tombstones=len(block.tombstones))
        self._labels = _MultisetHash()
        self._last_ref = -1

    def run(self) -> BlockCounts:
        if self._block.meta.ulid != self._block.name:
            raise Inconsistent(META, -1, f"the ULID {self._block.meta.ulid} is not the folder's name")
        claimed = claimed_partition(self._block.meta)
        for batch in self._block.index.batches():
            if not claimed.is_whole:
                [belongs] = series_in_partition(batch, self._block.index.symbols, claimed)
                check_partition_members(batch, belongs, claimed)
            self._count_labels(batch)
            self._check_chunks(batch)
        self._check_postings()
        self._check_label_indices()
        self._check_stats()
        return self._counts

    def _count_labels(self, batch: SeriesBatch) -> None:
        ids = np.repeat(batch.ids, np.diff(batch.label_starts))
        names, values = batch.label_refs[::2], batch.label_refs[1::2]
        self._labels.add(names, values, ids)
        self._counts.series += len(batch.ids)
        self._counts.chunks += len(batch.chunk_refs)

    def _check_chunks(self, batch: SeriesBatch) -> None:
        """Check all chunks of a batch; all except plain valid float chunks one by one."""
        count = len(batch.chunk_refs)
        misplaced = self._first_misplaced(batch)
        files = self._block.chunks.contents
        if misplaced == count:
            refuse_long_series(batch, files, self._budget)
        position = 0
        while position < count:
            end, samples = sound_float_chunks(files, batch, position)
            self._counts.samples += samples
            self._counts.float_samples += samples
            position = min(end, misplaced)
            if position:
                self._last_ref = int(batch.chunk_refs[position - 1])
            if position < count:
                columns = (batch.min_times, batch.max_times, batch.chunk_refs)
                meta = ChunkMeta(*(int(column[position]) for column in columns))
                if self._check_chunk(meta) not in DECODED_ENCODINGS:
                    series = int(np.searchsorted(batch.chunk_starts, position, "right")) - 1
                    self._check_only_copied(meta, int(batch.ids[series]))
            position += 1
        if count:
            self._block.chunks.forget_before(self._last_ref)

    def _first_misplaced(self, batch: SeriesBatch) -> int:
        """Return the first chunk outside the block's time range or not after the previous one."""
        inside, refs = self._block.meta, batch.chunk_refs
        is_misplaced = (batch.min_times < inside.min_time_ms) | (batch.max_times >= inside.max_time_ms)
        is_misplaced[1:] |= refs[1:] <= refs[:-1]
        if len(refs) and int(refs[0]) <= self._last_ref:
            return 0
        return int(np.argmax(is_misplaced)) if np.any(is_misplaced) else len(refs)

    def _check_only_copied(self, meta: ChunkMeta, series_id: int) -> None:
        """Reject a chunk that cannot be decoded where a merge would have to decode it."""
        number, offset = chunk_place(meta.ref)
        if self._is_merged_by_time:
            raise OnlyCopied(file_name(number), offset, "samples of this encoding cannot be merged with other blocks")
        if not np.any(self._deleted == series_id):
            return
        for start, end in self._block.tombstones.intervals(series_id):
            if start <= meta.max_time_ms and meta.min_time_ms <= end:
                raise OnlyCopied(file_name(number), offset, "samples are deleted from a chunk that can only be copied")

    def _check_chunk(self, meta: ChunkMeta) -> int:
        """Check one chunk and return its encoding."""
        number, offset = chunk_place(meta.ref)
        inside = self._block.meta
        if meta.min_time_ms < inside.min_time_ms or meta.max_time_ms >= inside.max_time_ms:
            reason = (
                f"a chunk from {meta.min_time_ms} to {meta.max_time_ms}, the block is from {inside.min_time_ms} up to "
                f"{inside.max_time_ms}"
            )
            raise Inconsistent(file_name(number), offset, reason)
        if meta.ref <= self._last_ref:
            raise OutOfOrder(file_name(number), offset, "chunk references do not ascend")
        self._last_ref = meta.ref
        chunk = self._block.chunk(meta)
        if len(chunk.data) < COUNT_BYTES or not chunk.sample_count:
            raise BadObject(file_name(number), offset, "a chunk without samples")
        self._counts.samples += chunk.sample_count
        if chunk.encoding in FLOAT_ENCODINGS:
            self._counts.float_samples += chunk.sample_count
        else:
            self._counts.histogram_samples += chunk.sample_count
        if chunk.encoding == ENCODING_XOR:
            self._block.floats(meta, chunk)
        elif chunk.encoding in HISTOGRAM_ENCODINGS:
            self._block.histograms(meta, chunk)
        return chunk.encoding

    def _check_postings(self) -> None:
        index = self._block.index
        listed = _MultisetHash()
        all_series: Numbers | None = None
        for postings in index.postings_lists():
            self._counts.postings_lists += 1
            if all_series is None:
                all_series = self._all_series(postings)
                continue
            pair = [self._symbol(text, postings.offset) for text in (postings.name, postings.value)]
            if not len(postings.ids) or not _are_among(postings.ids, all_series):
                raise Inconsistent(SECTION, postings.offset, "postings are empty or reference an unknown series")
            names, values = (np.full(len(postings.ids), number, np.uint32) for number in pair)
            listed.add(names, values, postings.ids)
        if all_series is None:
            raise Inconsistent(SECTION, index.contents.postings_offset_table, "there is no postings list of all series")
        if not _are_among(np.fromiter(self._block.tombstones.series_ids(), np.uint64), all_series):
            raise Inconsistent(TOMBSTONES, -1, "a tombstone references an unknown series")
        if listed.sums != self._labels.sums:
            reason = "the postings are not the inverse of the series' labels"
            raise Inconsistent(SECTION, index.contents.postings, reason)

    def _all_series(self, postings: PostingsList) -> Numbers:
        if (postings.name, postings.value) != ALL_POSTINGS:
            raise Inconsistent(SECTION, postings.offset, "the first postings list is not that of all series")
        position = 0
        for batch in self._block.index.batches():
            if not np.array_equal(postings.ids[position : position + len(batch.ids)], batch.ids):
                break
            position += len(batch.ids)
        if position != len(postings.ids) or position != self._counts.series:
            raise Inconsistent(SECTION, postings.offset, "the first postings list differs from the series section")
        return postings.ids

    def _symbol(self, text: bytes, offset: int) -> int:
        number = self._block.index.symbols.find(text)
        if number is None:
            raise BadReference(SECTION, offset, f"{text[:100]!r} has postings but is not a symbol")
        return number

    def _check_label_indices(self) -> None:
        """Compare the label indices, if present, with the names and values that have postings."""
        index = self._block.index
        if index.contents.label_offset_table == index.contents.postings_offset_table:
            return
        entries = ((name, value) for name, value, _ in index.postings_entries() if (name, value) != ALL_POSTINGS)
        by_name = groupby(entries, key=itemgetter(0))
        for found, expected in zip_longest(index.label_indices(), by_name):
            if found is None or expected is None or found.name != expected[0]:
                place = found.offset if found is not None else index.contents.label_offset_table
                raise Inconsistent(SECTION, place, "the label indices do not have the names that have postings")
            values = (self._symbol(value, found.offset) for _, value in expected[1])
            if not np.array_equal(found.values, np.fromiter(values, np.uint32)):
                raise Inconsistent(SECTION, found.offset, "a label index does not have the values that have postings")

    def _check_stats(self) -> None:
        stats, counts = self._block.meta.stats, self._counts
        pairs = {
            "series": (stats.num_series, counts.series),
            "chunks": (stats.num_chunks, counts.chunks),
            "samples": (stats.num_samples, counts.samples),
            "tombstones": (stats.num_tombstones, counts.tombstones),
        }
        if stats.num_float_samples or stats.num_histogram_samples:
            pairs["float samples"] = (stats.num_float_samples, counts.float_samples)
            pairs["histogram samples"] = (stats.num_histogram_samples, counts.histogram_samples)
        for what, (stated, found) in pairs.items():
            if stated != found:
                raise Inconsistent(META, -1, f"{stated} {what} in the statistics, {found} in the block")


def _are_among(ids: npt.NDArray[np.unsignedinteger], known: Numbers) -> bool:
    """Return whether all ids are among the ascending known ones."""
    if not len(known):
        return not len(ids)
    places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    return bool(np.all(known[places] == ids))


class _MultisetHash:
    """An order-independent sum over (name, value, series) that distinguishes multisets."""

    _keys = tuple(np.uint64(secrets.randbits(64) | 1) for _ in range(3))

    def __init__(self) -> None:
        self.sums = (0, 0)

    def add(self, names: Numbers, values: Numbers, ids: Numbers) -> None:
        """Add triples; the three arrays must have equal lengths."""
        pairs = names.astype(np.uint64) << np.uint64(32) | values
        mixed = _mixed(_mixed(pairs ^ self._keys[0]) + ids * self._keys[1])
        again = _mixed(mixed ^ self._keys[2])
        first, second = (int(each.sum(dtype=np.uint64)) for each in (mixed, again))
        self.sums = ((self.sums[0] + first) & UINT64_MASK, (self.sums[1] + second) & UINT64_MASK)


def _mixed(words: Words) -> Words:
    """Mix the bits of each word."""
    words = (words ^ words >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ words >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return words ^ words >> np.uint64(31)
