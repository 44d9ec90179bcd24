"""Pure Python reference implementation of the merge of series."""

from __future__ import annotations

from collections.abc import Sequence

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, LimitExceeded, MergeRefused, Truncated, UnknownFormat
from engine.formats.prometheus.chunks.chunk_files import (
    CHUNK_BYTES_MAX,
    CRC_BYTES,
    HEADER_BYTES,
    OFFSET_BITS,
    chunk_place,
    file_name,
)
from engine.formats.prometheus.index.series_batch import SeriesBatch, series_batch
from engine.formats.prometheus.mapped_file import FileCursor
from engine.formats.prometheus.merge_stops import OVERLAY_FILE, MergedSeries, MergeStop
from engine.formats.prometheus.model import ENCODING_XOR, ENCODINGS, FLOAT_ENCODINGS, Chunk, ChunkMeta
from engine.lanes.tsdb.merge.merge_heap import MergeHeap
from engine.lanes.tsdb.merge.merge_model import MergeCounts, MergeRules, StoredChunk
from engine.lanes.tsdb.merge.overlaps import PlacedChunk, merge_chunks
from engine.lanes.tsdb.merge.series_budget import CHUNK_BYTES, SeriesBudget, refuse_record

LENGTH_BYTES_MAX = 5
SERIES_MOST = 4096
"""Largest number of series that ``take`` returns at once."""


class _Source:
    def __init__(self, name: str, files: Sequence[memoryview]) -> None:
        self.name = name
        self.files = files
        self.overlay = memoryview(b"")
        self.batch: SeriesBatch | None = None
        self.position = -1
        self.has_ended = False

    @property
    def is_exhausted(self) -> bool:
        """Return whether there is no loaded series after the current one."""
        return self.batch is None or self.position + 1 >= len(self.batch.ids)

    @property
    def labels(self) -> tuple[int, ...]:
        assert self.batch is not None
        return self.batch.label_refs_of(self.position)

    def metas(self) -> list[ChunkMeta]:
        """Return the chunks of the current series."""
        assert self.batch is not None
        first, last = (int(self.batch.chunk_starts[self.position + step]) for step in (0, 1))
        columns = (self.batch.min_times, self.batch.max_times, self.batch.chunk_refs)
        return list(map(ChunkMeta, *(column[first:last].tolist() for column in columns)))


class SeriesMerge:
    """Merges series of several sources. ``run`` returns what is needed next, ``take`` the merged series.

    ``sources`` are the blocks' names and the bytes of their chunk files, in merge order.
    """

    def __init__(
        self, sources: Sequence[tuple[str, Sequence[memoryview]]], rules: MergeRules, budget: SeriesBudget
    ) -> None:
        self.counts = MergeCounts()
        self._sources = [_Source(*source) for source in sources]
        self._rules = rules
        self._budget = budget
        self._heap: MergeHeap[_Source] = MergeHeap(lambda one, other: one.labels < other.labels)
        self._taken = list(self._sources)
        self._plain: list[list[PlacedChunk]] | None = None
        self._files, self._position = 0, 0
        self._clear()

    def load(self, source: int, batch: SeriesBatch, overlay: bytes) -> None:
        """Load a source's next series, which have chunks; those of file OVERLAY_FILE are records in ``overlay``."""
        into = self._sources[source]
        into.batch, into.position, into.overlay = batch, -1, memoryview(overlay)

    def end(self, source: int) -> None:
        """Mark a source as having no more series."""
        self._sources[source].has_ended = True

    def run(self, most_bytes: int) -> tuple[MergeStop, int]:
        """Continue the merge; ``NEEDS`` comes with the source, ``FULL`` after about ``most_bytes`` of records."""
        while True:
            if len(self._records) >= most_bytes or len(self._rows) >= SERIES_MOST:
                return MergeStop.FULL, -1
            for number, source in enumerate(self._sources):
                if source in self._taken and source.is_exhausted and not source.has_ended:
                    return MergeStop.NEEDS, number
            if not self._take_next():
                return MergeStop.DONE, -1
            chunks = self._chunks()
            if any(each.stored.chunk.encoding != ENCODING_XOR for column in chunks for each in column):
                self._plain = chunks
                return MergeStop.PLAIN, -1
            self.put(merge_chunks(chunks, self._rules, self._budget))

    def plain(self) -> list[list[PlacedChunk]]:
        """Return the chunks, by source, of the series that the caller must merge and ``put``."""
        assert self._plain is not None
        return self._plain

    def put(self, chunks: Sequence[StoredChunk]) -> None:
        """Append the merged chunks of the current series."""
        self._plain = None
        metas = []
        starts = self._file_starts_in([len(stored.chunk.data) for stored in chunks])
        for stored, starts_file in zip(chunks, starts, strict=True):
            if starts_file:
                self._file_starts.append(len(self._records))
                self._files += 1
                self._position = HEADER_BYTES
            metas.append(ChunkMeta(*stored[:2], (self._files - 1) << OFFSET_BITS | self._position))
            sealed = bytes([stored.chunk.encoding]) + stored.chunk.data
            record = encode_uvarint(len(stored.chunk.data)) + sealed + crc32c(sealed).to_bytes(CRC_BYTES, "big")
            self._records += record
            self._position += len(record)
            self.counts.samples_written += stored.chunk.sample_count
            if stored.chunk.encoding in FLOAT_ENCODINGS:
                self.counts.float_samples_written += stored.chunk.sample_count
        self._rows.append((self._taken[0].labels, metas))
        self.counts.series_written += 1
        self.counts.chunks_written += len(chunks)

    def take(self) -> MergedSeries:
        """Return the series merged since the last call; records are valid only until the merge continues."""
        merged = MergedSeries(series_batch(self._rows), memoryview(bytes(self._records)), self._file_starts)
        self._clear()
        return merged

    def _clear(self) -> None:
        self._rows: list[tuple[tuple[int, ...], list[ChunkMeta]]] = []
        self._records = bytearray()
        self._file_starts: list[int] = []

    def _take_next(self) -> bool:
        """Pop the sources with the next series, after pushing back those of the previous series."""
        for source in self._taken:
            source.position += 1
            if source.batch is not None and source.position < len(source.batch.ids):
                self._heap.push(source)
        self._taken = []
        while self._heap and (not self._taken or self._heap.top.labels == self._taken[0].labels):
            self._taken.append(self._heap.pop())
        return bool(self._taken)

    def _chunks(self) -> list[list[PlacedChunk]]:
        """Return the chunks of the current series by source. Raises LimitExceeded or MergeRefused beyond the budget."""
        columns, held = [], 0
        for source in self._taken:
            column, own = self._chunks_of(source)
            columns.append(column)
            held += own
            if held > self._budget.record_bytes:
                raise MergeRefused(f"{source.name}: the chunks of a series in all blocks exceed the memory budget")
        return columns

    def _chunks_of(self, source: _Source) -> tuple[list[PlacedChunk], int]:
        """Return the chunks of a source and the memory they take."""
        held = 0
        number = self._sources.index(source)
        chunks = []
        for meta in source.metas():
            try:
                chunk, size = self._read(source, meta.ref)
                held += CHUNK_BYTES + size
                refuse_record(held, meta.ref, self._budget)
            except BadObject as error:
                raise error.in_object(source.name) from error
            chunks.append(PlacedChunk(StoredChunk(*meta[:2], chunk), source.name, meta.ref, number))
            self.counts.samples_read += chunk.sample_count
        self.counts.series_read += 1
        self.counts.chunks_read += len(chunks)
        return chunks, held

    def _read(self, source: _Source, ref: int) -> tuple[Chunk, int]:
        """Return a chunk and the length of its record."""
        number, offset = chunk_place(ref)
        name = file_name(number)
        if number == OVERLAY_FILE:
            data = source.overlay
        elif number < len(source.files):
            data = source.files[number]
        else:
            raise BadReference(name, offset, "the block has no such chunk file")
        if not HEADER_BYTES <= offset < len(data):
            raise BadReference(name, offset, "invalid offset of a chunk record")
        cursor = FileCursor(data, name, offset)
        size = cursor.uvarint()
        if size > CHUNK_BYTES_MAX:
            raise LimitExceeded(name, offset, "a chunk exceeds the maximum length")
        if size + 1 + CRC_BYTES > cursor.left:
            raise Truncated(name, offset, "the file ends inside a record")
        start = cursor.position
        record = cursor.checked(size + 1)
        if (encoding := record.u8()) not in ENCODINGS:
            raise UnknownFormat(name, start, "an unknown encoding of a chunk")
        if size < 2 or not (chunk := Chunk(encoding, bytes(record.take(size)))).sample_count:
            raise BadObject(name, start, "a chunk without samples")
        record_bytes = cursor.position - offset  # includes the checksum
        self.counts.bytes_read += record_bytes
        return chunk, record_bytes

    def _file_starts_in(self, sizes: Sequence[int]) -> list[bool]:
        """Return for each chunk of a series whether a new file begins before it, assuming the longest length field."""
        begin, starts, estimate = self._position, list[bool](), 0
        for size in sizes:
            share = LENGTH_BYTES_MAX + 1 + size + CRC_BYTES
            estimate += share
            if begin == 0 and not starts:
                is_start = True
            elif begin > HEADER_BYTES and not any(starts):
                is_start = estimate + begin > self._rules.chunk_file_bytes
            else:
                is_start = bool(starts) and estimate + HEADER_BYTES > self._rules.chunk_file_bytes
            if is_start:
                estimate = share
            starts.append(is_start)
        return starts
