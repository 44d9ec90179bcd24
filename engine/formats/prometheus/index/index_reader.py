"""Reader of an index (version 2): symbols, series, label indices, postings.

Only four bytes per symbol are held in memory; the rest is read from the mapped file on demand. Each part is verified
(checksum, bounds, order) before it is returned.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject, BadReference, LimitExceeded
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import (
    CONTENTS_BYTES,
    CRC_BYTES,
    LABEL_BYTES_MAX,
    LABEL_ENTRY_KEYS,
    LIST_ALIGNMENT,
    POSTINGS_ENTRY_KEYS,
    SECTION,
    SERIES_ALIGNMENT,
    read_table_of_contents,
)
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.series_entries import decode_series
from engine.formats.prometheus.index.symbol_table import SymbolTable
from engine.formats.prometheus.mapped_file import FORGET_BYTES, FileCursor, MappedFile
from engine.formats.prometheus.model import ChunkMeta, Labels, Series

BATCH_SERIES = 512

ALL_POSTINGS = (b"", b"")

Numbers = npt.NDArray[np.uint32]


class PostingsList(NamedTuple):
    """The ascending ids of the series with a label; an empty name and value is the list of all series."""

    name: bytes
    value: bytes
    offset: int
    ids: Numbers


class LabelIndex(NamedTuple):
    """The ascending symbol numbers of the values of a label name."""

    name: bytes
    offset: int
    values: Numbers


class IndexReader:
    """An index in a mapped file, which is open until the last reference to it ends."""

    def __init__(self, path: Path, forget_bytes: int = FORGET_BYTES) -> None:
        """Open an index and verify header, table of contents and symbols. Raises BadObject."""
        self._file = MappedFile(path, forget_bytes)
        self._data = self._file.data
        self.contents = read_table_of_contents(self._data)
        self.symbols = SymbolTable(self._data, self.contents.symbols, self.contents.series)
        # The empty string may be a symbol, but not a label name.
        self._first_name = 1 if len(self.symbols) and self.symbols[0] == b"" else 0

    @property
    def size(self) -> int:
        """Return the size of the index in bytes."""
        return len(self._data)

    @property
    def table_bytes(self) -> int:
        """Return the size of the postings offset table in bytes, by the table of contents."""
        return len(self._data) - CONTENTS_BYTES - CRC_BYTES - self.contents.postings_offset_table

    def series(self) -> Iterator[Series]:
        """Yield every series in label order."""
        for batch in self.batches():
            for position in range(len(batch.ids)):
                yield self._series_of(batch, position)

    def batches(self, most: int = BATCH_SERIES) -> Iterator[SeriesBatch]:
        """Yield the series section in batches of up to ``most`` series."""
        position, end = self.contents.series, self.contents.label_indices
        after: tuple[int, ...] | None = None
        while position < end:
            batch = decode_series(self._data, position, end, len(self.symbols), self._first_name, after, most)
            after = batch.label_refs_of(len(batch.ids) - 1)
            position = batch.next_position
            self._check_label_bytes(batch)
            self._file.forget_before(position)
            yield batch

    def series_by_id(self, series_id: int) -> Series:
        """Return a series by its id, which postings and tombstones use. Raises BadReference if there is none."""
        position = series_id * SERIES_ALIGNMENT
        if not self.contents.series <= position < self.contents.label_indices:
            raise BadReference(SECTION, position, f"series {series_id} is not in the series section")
        end = self.contents.label_indices
        batch = decode_series(self._data, position, end, len(self.symbols), self._first_name, None, 1)
        self._check_label_bytes(batch)
        return self._series_of(batch, 0)

    def labels(self, refs: tuple[int, ...]) -> Labels:
        """Return the labels of alternating symbol numbers of names and values."""
        texts = [self.symbols[ref] for ref in refs]
        return tuple(zip(texts[::2], texts[1::2], strict=True))

    def postings_entries(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield name, value and offset of every postings list, ascending; the first list is that of all series."""
        previous: tuple[bytes, ...] | None = None
        for at, keys, offset in self._entries(self.contents.postings_offset_table, POSTINGS_ENTRY_KEYS):
            if previous is not None and keys <= previous:
                raise OutOfOrder(SECTION, at, "the postings offset table does not ascend")
            previous = keys
            yield keys[0], keys[1], offset

    def postings_lists(self) -> Iterator[PostingsList]:
        """Yield every postings list in the order of the offset table."""
        for name, value, offset in self.postings_entries():
            yield PostingsList(name, value, offset, self._postings(offset))

    def postings(self, name: bytes, value: bytes) -> Numbers:
        """Return the ids of the series with a label, which may be none; scans the offset table."""
        for *keys, offset in self.postings_entries():
            if keys == [name, value]:
                return self._postings(offset)
        return np.empty(0, np.uint32)

    def label_indices(self) -> Iterator[LabelIndex]:
        """Yield the label indices, ascending by name; recent writers omit them."""
        previous: bytes | None = None
        if self.contents.label_offset_table == self.contents.postings_offset_table:
            return
        for at, (name,), offset in self._entries(self.contents.label_offset_table, LABEL_ENTRY_KEYS):
            if previous is not None and name <= previous:
                raise OutOfOrder(SECTION, at, "the label offset table does not ascend")
            previous = name
            yield LabelIndex(name, offset, self._label_index(offset))

    def _check_label_bytes(self, batch: SeriesBatch) -> None:
        """Raise LimitExceeded if the labels of a series exceed LABEL_BYTES_MAX, before they are materialised."""
        counts = 2 * np.diff(batch.label_starts)
        if not len(counts) or int(counts.max()) * self.symbols.longest_bytes <= LABEL_BYTES_MAX:
            return
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.symbols.sizes(batch.label_refs))])
        sizes = sums[2 * batch.label_starts[1:]] - sums[2 * batch.label_starts[:-1]]
        if np.any(too_long := sizes > LABEL_BYTES_MAX):
            place = int(np.argmax(too_long))
            reason = f"labels of {sizes[place]} bytes exceed the maximum of {LABEL_BYTES_MAX} per series"
            raise LimitExceeded(SECTION, SERIES_ALIGNMENT * int(batch.ids[place]), reason)

    def _series_of(self, batch: SeriesBatch, position: int) -> Series:
        first, last = int(batch.chunk_starts[position]), int(batch.chunk_starts[position + 1])
        arrays = (batch.min_times, batch.max_times, batch.chunk_refs)
        chunks = tuple(map(ChunkMeta, *(each[first:last].tolist() for each in arrays)))
        return Series(int(batch.ids[position]), self.labels(batch.label_refs_of(position)), chunks)

    def _entries(self, start: int, keys: int) -> Iterator[tuple[int, tuple[bytes, ...], int]]:
        """Yield position, keys and offset of the entries of an offset table."""
        ends = (self.contents.postings_offset_table, len(self._data) - CONTENTS_BYTES - CRC_BYTES)
        cursor = FileCursor(self._data, SECTION, start, next(end for end in ends if end > start))
        table = cursor.checked(cursor.u32())
        cursor.expect_end()
        for _ in range(table.count(table.u32(), keys + 2, "entries")):
            at = table.position
            if (found := table.u8()) != keys:
                raise BadObject(SECTION, at, f"a table entry has {found} keys, expected {keys}")
            yield at, tuple(table.text() for _ in range(keys)), table.uvarint()
        table.expect_end()

    def _postings(self, offset: int) -> Numbers:
        body = self._list_at(offset, self.contents.postings, self.contents.label_offset_table)
        return _ascending(body, body.u32())

    def _label_index(self, offset: int) -> Numbers:
        body = self._list_at(offset, self.contents.label_indices, self.contents.postings)
        at = body.position
        if (names := body.u32()) != 1:
            raise BadObject(SECTION, at, f"a label index has {names} names, expected 1")
        values = _ascending(body, body.u32())
        if len(values) and int(values[-1]) >= len(self.symbols):
            raise BadReference(SECTION, at, f"symbol {values[-1]} of {len(self.symbols)} in a label index")
        return values

    def _list_at(self, offset: int, start: int, end: int) -> FileCursor:
        if not start <= offset < end or offset % LIST_ALIGNMENT:
            reason = f"a list at offset {offset}, expected {start} to {end}"
            raise BadReference(SECTION, min(offset, len(self._data)), reason)
        cursor = FileCursor(self._data, SECTION, offset, end)
        return cursor.checked(cursor.u32())


def _ascending(body: FileCursor, count: int) -> Numbers:
    """Return the numbers in the rest of a list. Raises OutOfOrder unless they ascend."""
    at = body.position
    if body.left != 4 * count:
        raise BadObject(SECTION, at, f"{count} numbers expected in {body.left} bytes")
    numbers = np.frombuffer(body.take(body.left), ">u4").astype(np.uint32)
    if np.any(numbers[1:] <= numbers[:-1]):
        raise OutOfOrder(SECTION, at, "the numbers of a list do not ascend")
    return numbers
