"""Writes an index (version 2) in one pass over the series, then further passes over what was written.

Neither series nor postings are held: a pass collects the labels of as many names as a budget allows, and the table of
postings lists waits in a file of its own until its place in the index is reached.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from engine.profiles.errors import BadReference, LimitExceeded
from engine.tsdb.checksums import crc32c
from engine.tsdb.errors import OutOfOrder
from engine.tsdb.index_layout import (
    CRC_BYTES,
    INDEX_BYTES_MAX,
    LABEL_ENTRY_KEYS,
    LIST_ALIGNMENT,
    MAGIC,
    POSTINGS_ENTRY_KEYS,
    SECTION,
    VERSION,
    TableOfContents,
)
from engine.tsdb.index_reader import BATCH_SERIES, Numbers
from engine.tsdb.mapped_file import MappedFile
from engine.tsdb.sealed_file import SealedFile
from engine.tsdb.series_batch import SeriesBatch
from engine.tsdb.series_entries import decode_series, encode_series
from engine.tsdb.symbol_table import SymbolTable
from engine.tsdb.varints import uvarint

LABELS_HELD_MAX = 2 << 20
"""Labels (name, value, series) that a pass collects: about 50 MB while they are sorted."""
BODY_BYTES_MAX = (1 << 32) - 1
COPY_BYTES = 1 << 20

Pairs = npt.NDArray[np.uint64]
"""Name in the upper, value in the lower 32 bits."""


class IndexWriter:
    """Writes an index: symbols at once, then series in label order, then ``finish``."""

    def __init__(
        self, path: Path, symbols: Iterable[bytes], *, label_indices: bool = True, labels_held: int = LABELS_HELD_MAX
    ) -> None:
        """Write the symbols, which ascend. ``label_indices`` False leaves out what older programs write unread."""
        self.series_count = 0
        self._has_label_indices = label_indices
        self._labels_held = labels_held
        self._after: tuple[int, ...] | None = None
        self._last_ref = -1
        self._file = SealedFile(path)
        try:
            self._file.write(MAGIC.to_bytes(4, "big") + bytes([VERSION]))
            self._symbols_at = self._file.position
            self._write_symbols(symbols)
        except BaseException:
            self._file.discard()
            raise
        self._series_at = self._file.position
        self._names = np.zeros(self._symbol_count, np.int64)

    def add(self, batch: SeriesBatch) -> Numbers:
        """Append series, whose chunk references ascend over all series, and return their ids; the batch's are unused.

        OutOfOrder if anything does not ascend, BadReference for a symbol that does not exist.
        """
        if not len(batch.ids):
            return batch.ids
        if len(batch.label_refs) and int(batch.label_refs.max()) >= self._symbol_count:
            raise BadReference(SECTION, self._file.position, f"a symbol beyond the {self._symbol_count} there are")
        refs = batch.chunk_refs
        if len(refs) and (int(refs[0]) <= self._last_ref or np.any(refs[1:] <= refs[:-1])):
            raise OutOfOrder(SECTION, self._file.position, "the references of chunks do not ascend")
        data, ids = encode_series(batch, self._file.position, self._after)
        self._write_within_limit(data)
        self._after = batch.label_refs_of(len(batch.ids) - 1)
        self._last_ref = int(refs[-1]) if len(refs) else self._last_ref
        np.add.at(self._names, batch.label_refs[::2], 1)
        self.series_count += len(ids)
        return ids

    def finish(self) -> TableOfContents:
        """Write what follows from the series, and the file to the disk."""
        label_indices_at = self._file.position
        with tempfile.TemporaryFile(dir=self._file.path.parent) as postings_table:
            self._file.flush()
            written = MappedFile(self._file.path)
            inverse = _InvertedLabels(written, self._series_at, label_indices_at, self._names, self._labels_held)
            symbols = SymbolTable(written.data, self._symbols_at, self._series_at)
            label_table = self._write_label_indices(inverse, symbols) if self._has_label_indices else None
            postings_at = self._file.position
            self._write_all_postings(inverse, postings_table)
            lists = 1 + self._write_postings(inverse, symbols, postings_table)
            label_table_at = self._file.position
            if label_table is not None:
                self._write_sized(label_table)
            postings_table_at = self._file.position
            self._copy_table(lists, postings_table)
        contents = TableOfContents(
            symbols=self._symbols_at,
            series=self._series_at,
            label_indices=label_indices_at,
            label_offset_table=label_table_at,
            postings=postings_at,
            postings_offset_table=postings_table_at,
        )
        body = b"".join(place.to_bytes(8, "big") for place in contents)
        self._write_within_limit(body + _crc(body))
        self._file.close()
        return contents

    def discard(self) -> None:
        """Let go of the file."""
        self._file.discard()

    def _write_symbols(self, symbols: Iterable[bytes]) -> None:
        self._file.write(bytes(8))
        before: bytes | None = None
        self._symbol_count = 0
        for symbol in symbols:
            if before is not None and symbol <= before:
                raise OutOfOrder(SECTION, self._file.position, "the symbols do not ascend")
            before = symbol
            self._file.write(uvarint(len(symbol)) + symbol)
            self._symbol_count += 1
        start = self._symbols_at + 4
        size = self._file.position - start
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, start, f"symbols of {size} bytes, at most {BODY_BYTES_MAX} fit")
        self._file.patch(self._symbols_at, size.to_bytes(4, "big") + self._symbol_count.to_bytes(4, "big"))
        self._file.flush()
        # The count stands before the symbols and is known after them: the checksum is of what is in the file now.
        checksum = crc32c(MappedFile(self._file.path).data[start:])
        self._file.write(checksum.to_bytes(CRC_BYTES, "big"))

    def _write_label_indices(self, inverse: _InvertedLabels, symbols: SymbolTable) -> bytes:
        """Write the values of each name and return their table."""
        entries = []
        for pairs, _ in inverse.batches():
            distinct = np.unique(pairs)
            names = (distinct >> np.uint64(32)).astype(np.uint32)
            for first, last in _runs(names):
                self._file.pad(LIST_ALIGNMENT)
                name = symbols[int(names[first])]
                entries.append(bytes([LABEL_ENTRY_KEYS]) + _text(name) + uvarint(self._file.position))
                values = distinct[first:last].astype(np.uint32)
                head = (1).to_bytes(4, "big") + len(values).to_bytes(4, "big")
                self._write_sized(head + values.astype(">u4").tobytes())
        return len(entries).to_bytes(4, "big") + b"".join(entries)

    def _write_all_postings(self, inverse: _InvertedLabels, table: IO[bytes]) -> None:
        self._file.pad(LIST_ALIGNMENT)
        table.write(self._table_entry(b"", b""))
        size = 4 + 4 * self.series_count
        head = self.series_count.to_bytes(4, "big")
        self._file.write(size.to_bytes(4, "big") + head)
        checksum = crc32c(head)
        for batch in inverse.series():
            data = batch.ids.astype(">u4").tobytes()
            self._file.write(data)
            checksum = crc32c(data, checksum)
        self._write_within_limit(checksum.to_bytes(CRC_BYTES, "big"))

    def _write_postings(self, inverse: _InvertedLabels, symbols: SymbolTable, table: IO[bytes]) -> int:
        """Write the list of every name and value, their entries to ``table``; return how many."""
        count = 0
        for pairs, ids in inverse.batches():
            big_endian = ids.astype(">u4")
            for first, last in _runs(pairs):
                self._file.pad(LIST_ALIGNMENT)
                pair = int(pairs[first])
                table.write(self._table_entry(symbols[pair >> 32], symbols[pair & 0xFFFFFFFF]))
                self._write_sized((last - first).to_bytes(4, "big") + big_endian[first:last].tobytes())
                count += 1
        return count

    def _table_entry(self, name: bytes, value: bytes) -> bytes:
        return bytes([POSTINGS_ENTRY_KEYS]) + _text(name) + _text(value) + uvarint(self._file.position)

    def _copy_table(self, entries: int, table: IO[bytes]) -> None:
        size = 4 + table.tell()
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"a postings offset table of {size} bytes")
        head = entries.to_bytes(4, "big")
        self._file.write(size.to_bytes(4, "big") + head)
        checksum = crc32c(head)
        table.seek(0)
        while data := table.read(COPY_BYTES):
            self._file.write(data)
            checksum = crc32c(data, checksum)
        self._file.write(checksum.to_bytes(CRC_BYTES, "big"))

    def _write_sized(self, body: bytes) -> None:
        if len(body) > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"a list of {len(body)} bytes")
        self._write_within_limit(len(body).to_bytes(4, "big") + body + _crc(body))

    def _write_within_limit(self, data: bytes) -> None:
        if self._file.position + len(data) > INDEX_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"an index of more than {INDEX_BYTES_MAX} bytes")
        self._file.write(data)


class _InvertedLabels:
    """Which series have which label, in the order of the postings, out of the series that were written."""

    def __init__(
        self, file: MappedFile, start: int, end: int, series_of_name: npt.NDArray[np.int64], held: int
    ) -> None:
        self._file = file
        self._start = start
        self._end = end
        self._symbols = len(series_of_name)
        self._name_ranges = list(_name_ranges(series_of_name, held))
        self._last: tuple[tuple[int, int], tuple[Pairs, Numbers]] | None = None

    def series(self) -> Iterator[SeriesBatch]:
        """Yield the series that were written."""
        position = self._start
        while position < self._end:
            batch = decode_series(self._file.data, position, self._end, self._symbols, 0, None, BATCH_SERIES)
            position = batch.next_position
            yield batch

    def batches(self) -> Iterator[tuple[Pairs, Numbers]]:
        """Yield (name and value, series id) of some names after the other, ascending."""
        for names in self._name_ranges:
            if self._last is None or self._last[0] != names:
                self._last = None
                self._last = (names, self._sorted(*names))
            yield self._last[1]

    def _sorted(self, first_name: int, last_name: int) -> tuple[Pairs, Numbers]:
        pairs, ids = [], []
        for batch in self.series():
            names = batch.label_refs[::2]
            wanted = (names >= first_name) & (names < last_name)
            pairs.append(names[wanted].astype(np.uint64) << np.uint64(32) | batch.label_refs[1::2][wanted])
            ids.append(np.repeat(batch.ids, np.diff(batch.label_starts))[wanted])
        all_pairs = np.concatenate(pairs) if pairs else np.empty(0, np.uint64)
        order = np.argsort(all_pairs, kind="stable")
        return all_pairs[order], (np.concatenate(ids) if ids else np.empty(0, np.uint32))[order]


def _name_ranges(series_of_name: npt.NDArray[np.int64], held: int) -> Iterator[tuple[int, int]]:
    """Cut the names into ranges with up to ``held`` labels each; a name with more has a range of its own."""
    first, labels = 0, 0
    for name in np.flatnonzero(series_of_name).tolist():
        count = int(series_of_name[name])
        if labels and labels + count > held:
            yield first, name
            first, labels = name, 0
        labels += count
    if labels:
        yield first, len(series_of_name)


def _runs(keys: npt.NDArray[np.unsignedinteger]) -> Iterator[tuple[int, int]]:
    """Yield where runs of equal keys start and end."""
    starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist(), len(keys)]
    yield from ((first, last) for first, last in pairwise(starts) if last > first)


def _text(text: bytes) -> bytes:
    return uvarint(len(text)) + text


def _crc(body: bytes) -> bytes:
    return crc32c(body).to_bytes(CRC_BYTES, "big")
