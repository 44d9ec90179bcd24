"""Writer of an index (version 2) in one pass over the series.

Memory use does not depend on the number of series: postings are spilled in sorted runs, and offset tables are written
to temporary files until their position in the index is known.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadReference, LimitExceeded
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import (
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
from engine.formats.prometheus.index.index_reader import Numbers
from engine.formats.prometheus.index.postings_lists import format_lists
from engine.formats.prometheus.index.postings_spill import LABELS_HELD_MAX, Pieces, PostingsSpill
from engine.formats.prometheus.index.series_batch import SeriesBatch
from engine.formats.prometheus.index.series_entries import encode_series
from engine.formats.prometheus.index.symbol_table import SymbolTable
from engine.formats.prometheus.index.symbol_union import SymbolUnion
from engine.formats.prometheus.mapped_file import MappedFile
from engine.formats.prometheus.sealed_file import SealedFile

IDS_AT_ONCE = 1 << 18
"""Ids of the postings lists that are built together; a longer list is written in parts."""
TABLE_BYTES_AT_ONCE = 1 << 20
"""Bytes of the postings offset table that are held in memory, plus one entry."""
BODY_BYTES_MAX = (1 << 32) - 1
COPY_BYTES = 1 << 20


class IndexWriter:
    """Writes an index: symbols at once, then series in label order, then ``finish``."""

    def __init__(
        self,
        path: Path,
        symbols: Iterable[bytes] | SymbolUnion,
        *,
        label_indices: bool = True,
        labels_held: int = LABELS_HELD_MAX,
        table_bytes_max: int = BODY_BYTES_MAX,
        is_durable: bool = True,
    ) -> None:
        """Create an index and write its ascending symbols.

        ``label_indices`` false omits the label indices, which no reader needs. ``table_bytes_max`` bounds the postings
        offset table, which names each label once.
        """
        self.series_count = 0
        self._has_label_indices = label_indices
        self._table_bytes_max = min(table_bytes_max, BODY_BYTES_MAX)
        self._after: tuple[int, ...] | None = None
        self._last_ref = -1
        self._file = SealedFile(path, is_durable=is_durable)
        try:
            self._file.write(MAGIC.to_bytes(4, "big") + bytes([VERSION]))
            self._symbols_at = self._file.position
            self._write_symbols(symbols)
        except BaseException:
            self._file.discard()
            raise
        self._series_at = self._file.position
        self._spill = PostingsSpill(path.parent, labels_held)
        self._pause: Callable[[], None] = lambda: None

    def add(self, batch: SeriesBatch) -> Numbers:
        """Append series and return their ids; those of the batch are ignored. Chunk references ascend over all series.

        Raises OutOfOrder if anything does not ascend, BadReference for an unknown symbol, LimitExceeded.
        """
        if not len(batch.ids):
            return batch.ids
        if len(batch.label_refs) and int(batch.label_refs.max()) >= self._symbol_count:
            raise BadReference(SECTION, self._file.position, f"a label refers to a symbol beyond {self._symbol_count}")
        refs = batch.chunk_refs
        if len(refs) and (int(refs[0]) <= self._last_ref or np.any(refs[1:] <= refs[:-1])):
            raise OutOfOrder(SECTION, self._file.position, "the references of chunks do not ascend")
        data, ids = encode_series(batch, self._file.position, self._after)
        self._write_within_limit(data)
        self._after = batch.label_refs_of(len(batch.ids) - 1)
        self._last_ref = int(refs[-1]) if len(refs) else self._last_ref
        self._spill.add(batch, ids)
        self.series_count += len(ids)
        return ids

    def finish(self, pause: Callable[[], None] = lambda: None) -> TableOfContents:
        """Write postings and tables and close the file; ``pause`` is called periodically.

        Raises LimitExceeded if the postings offset table or another part exceeds its limit.
        """
        self._pause = pause
        label_indices_at = self._file.position
        folder = self._file.path.parent
        with tempfile.TemporaryFile(dir=folder) as label_table, tempfile.TemporaryFile(dir=folder) as postings_table:
            self._file.flush()
            symbols = SymbolTable(MappedFile(self._file.path).data, self._symbols_at, self._series_at)
            names = self._write_label_indices(symbols, label_table) if self._has_label_indices else 0
            postings_at = self._file.position
            self._write_all_postings(postings_table)
            lists = 1 + self._write_postings(symbols, postings_table)
            label_table_at = self._file.position
            if self._has_label_indices:
                self._copy_table(names, label_table)
            postings_table_at = self._file.position
            self._copy_table(lists, postings_table)
        self._spill.close()
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
        """Close the files of an unfinished index."""
        self._spill.close()
        self._file.discard()

    def _write_symbols(self, symbols: Iterable[bytes] | SymbolUnion) -> None:
        self._file.write(bytes(8))
        self._symbol_count = 0
        for block, count in symbols.blocks() if isinstance(symbols, SymbolUnion) else self._blocks(symbols):
            self._file.write(block)
            self._symbol_count += count
        start = self._symbols_at + 4
        size = self._file.position - start
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, start, f"symbols of {size} bytes exceed the maximum of {BODY_BYTES_MAX}")
        self._file.patch(self._symbols_at, size.to_bytes(4, "big") + self._symbol_count.to_bytes(4, "big"))
        self._file.flush()
        # The count precedes the symbols and is known only now, so the checksum is computed from the file.
        checksum = crc32c(MappedFile(self._file.path).data[start:])
        self._file.write(checksum.to_bytes(CRC_BYTES, "big"))

    def _blocks(self, symbols: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
        before: bytes | None = None
        for symbol in symbols:
            if before is not None and symbol <= before:
                raise OutOfOrder(SECTION, self._file.position, "the symbols do not ascend")
            before = symbol
            yield encode_uvarint(len(symbol)) + symbol, 1

    def _write_label_indices(self, symbols: SymbolTable, table: IO[bytes]) -> int:
        """Write the label indices, and their entries to ``table``; return their number."""
        names_written = 0
        open_name, values = -1, list[Numbers]()
        for pieces in self._spill.pieces():
            self._pause()
            distinct = np.unique(pieces.pairs)
            names = (distinct >> np.uint64(32)).astype(np.int64)
            starts = np.flatnonzero(np.diff(names, prepend=-1)).tolist()
            for first, last in pairwise([*starts, len(names)]):
                if int(names[first]) != open_name:
                    names_written += self._write_label_index(symbols, open_name, values, table)
                    open_name, values = int(names[first]), []
                values.append(distinct[first:last].astype(np.uint32))
        return names_written + self._write_label_index(symbols, open_name, values, table)

    def _write_label_index(self, symbols: SymbolTable, name: int, values: list[Numbers], table: IO[bytes]) -> int:
        """Write the label index of a name unless it is empty, and its entry to ``table``; return 0 or 1."""
        if not values:
            return 0
        self._file.pad(LIST_ALIGNMENT)
        table.write(bytes([LABEL_ENTRY_KEYS]) + _text(symbols[name]) + encode_uvarint(self._file.position))
        numbers = np.concatenate(values)
        head = (1).to_bytes(4, "big") + len(numbers).to_bytes(4, "big")
        self._write_sized(head + numbers.astype(">u4").tobytes())
        return 1

    def _write_all_postings(self, table: IO[bytes]) -> None:
        self._file.pad(LIST_ALIGNMENT)
        table.write(self._table_entry(b"", b""))
        self._write_streamed(self.series_count, self._spill.all_ids())

    def _write_streamed(self, count: int, ids: Iterable[bytes]) -> None:
        """Write a postings list of ``count`` ids, which are given in parts."""
        head = count.to_bytes(4, "big")
        size = 4 + 4 * count
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"a postings list of {size} bytes exceeds the maximum")
        self._file.write(size.to_bytes(4, "big") + head)
        checksum = crc32c(head)
        for data in ids:
            self._pause()
            self._write_within_limit(data)
            checksum = crc32c(data, checksum)
        self._write_within_limit(checksum.to_bytes(CRC_BYTES, "big"))

    def _write_postings(self, symbols: SymbolTable, table: IO[bytes]) -> int:
        """Write the postings lists of all labels, and their entries to ``table``; return their number."""
        lists = 0
        for pieces in self._spill.pieces():
            for part in _parts_of(pieces, IDS_AT_ONCE):
                self._pause()
                total = int(part.counts.sum(dtype=np.int64))
                if total > IDS_AT_ONCE:  # one list
                    self._file.pad(LIST_ALIGNMENT)
                    pair = int(part.pairs[0])
                    table.write(self._table_entry(symbols[pair >> 32], symbols[pair & 0xFFFFFFFF]))
                    self._check_table(table)
                    self._write_streamed(total, self._ids_of(part))
                    lists += 1
                    continue
                for written, entries, count in self._formatted(part, symbols):
                    self._write_within_limit(written)
                    table.write(entries)
                    self._check_table(table)
                    lists += count
        return lists

    def _formatted(self, part: Pieces, symbols: SymbolTable) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield encoded lists, their table entries and their number, in bounded steps."""
        ids, places = self._gathered(part)
        first = 0
        while first < len(places):
            written, entries, count, done = format_lists(
                self._file.position,
                part.pairs[first:],
                part.counts[first:],
                places[first:],
                ids,
                symbols,
                TABLE_BYTES_AT_ONCE,
            )
            yield written, entries, count
            first += done

    def _check_table(self, table: IO[bytes]) -> None:
        if (size := table.tell()) > self._table_bytes_max:
            reason = f"a postings offset table of {size} bytes exceeds the maximum of {self._table_bytes_max}"
            raise LimitExceeded(SECTION, self._file.position, reason)

    def _ids_of(self, part: Pieces) -> Iterator[bytes]:
        for count, place in zip(part.counts.tolist(), part.places.tolist(), strict=True):
            yield self._spill.ids(place, count)

    def _gathered(self, part: Pieces) -> tuple[bytes, npt.NDArray[np.int64]]:
        """Return the ids of pieces and the position of each piece in them; adjacent pieces are read together."""
        order = np.argsort(part.places, kind="stable")
        starts, counts = part.places[order], part.counts[order].astype(np.int64)
        ends = starts + 4 * counts
        firsts = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), starts[1:] != ends[:-1]]))
        lasts = np.append(firsts[1:], len(starts)) - 1
        spans = zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True)
        ids = b"".join(self._spill.ids(start, (end - start) // 4) for start, end in spans)
        places = np.empty(len(order), np.int64)
        places[order] = 4 * (np.cumsum(counts) - counts)
        return ids, places

    def _table_entry(self, name: bytes, value: bytes) -> bytes:
        return bytes([POSTINGS_ENTRY_KEYS]) + _text(name) + _text(value) + encode_uvarint(self._file.position)

    def _copy_table(self, entries: int, table: IO[bytes]) -> None:
        size = 4 + table.tell()
        if size > BODY_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"an offset table of {size} bytes exceeds the maximum")
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
            raise LimitExceeded(SECTION, self._file.position, f"a list of {len(body)} bytes is too long")
        self._write_within_limit(len(body).to_bytes(4, "big") + body + _crc(body))

    def _write_within_limit(self, data: bytes) -> None:
        if self._file.position + len(data) > INDEX_BYTES_MAX:
            raise LimitExceeded(SECTION, self._file.position, f"the index exceeds {INDEX_BYTES_MAX} bytes")
        self._file.write(data)


def _parts_of(pieces: Pieces, most: int) -> Iterator[Pieces]:
    """Yield parts of ``pieces`` that end between lists; each has up to ``most`` ids, or is a single list."""
    starts = np.flatnonzero(np.concatenate([np.ones(1, np.bool_), pieces.pairs[1:] != pieces.pairs[:-1]]))
    edges = [*starts.tolist(), len(pieces.pairs)]
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(pieces.counts, dtype=np.int64)])[edges].tolist()
    first = 0
    for place in range(1, len(edges)):
        if place - first > 1 and sums[place] - sums[first] > most:
            yield pieces.part(edges[first], edges[place - 1])
            first = place - 1
    if first < len(edges) - 1:
        yield pieces.part(edges[first], edges[-1])


def _text(text: bytes) -> bytes:
    return encode_uvarint(len(text)) + text


def _crc(body: bytes) -> bytes:
    return crc32c(body).to_bytes(CRC_BYTES, "big")
