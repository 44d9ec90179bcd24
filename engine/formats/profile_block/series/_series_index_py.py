"""Reference implementation of the series index codec in pure Python.

Parts in file order: magic and version, symbols, series, label indices, postings, label index table, postings table,
fingerprint offsets, table of contents. Fixed-width integers are big endian; every part has a CRC32C.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from engine.core.binary import ByteReader, encode_svarint, encode_uvarint
from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, LimitExceeded, Truncated, UnknownFormat
from engine.formats.profile_block.model import IndexedSeries

MAGIC = 0xBAAAD700
VERSION = 2
HEADER_BYTES = 5
TOC_BYTES = 76
SERIES_ALIGNMENT = 16
LIST_ALIGNMENT = 4
FINGERPRINT_INTERVAL = 1024
"""Number of series per entry of the fingerprint offsets."""
CHUNK_BYTES_MIN = 8

_SECTION = "series_index"


class _Contents(NamedTuple):
    """The table of contents; positions are relative to the start of the section."""

    symbols: int
    series: int
    label_indices: int
    label_index_table: int
    postings: int
    postings_table: int
    fingerprint_offsets: int


def decode_series_index(data: bytes) -> list[IndexedSeries]:
    """Return the series in the order of the list of all series. Raises BadObject.

    All checksums and references are verified.
    """
    contents = _read_contents(data)
    symbols = _read_symbols(data, contents)
    series = _read_series(data, contents, symbols)
    _check_label_indices(data, contents, symbols)
    order = _read_postings(data, contents, series)
    _check_fingerprint_offsets(data, contents, series)
    return [series[ref] for ref in order]


def _read_contents(data: bytes) -> _Contents:
    if len(data) < HEADER_BYTES + TOC_BYTES:
        raise Truncated(_SECTION, 0, f"{len(data)} bytes are too short for a series index")
    header = ByteReader(data, _SECTION)
    if (header.u32(), header.u8()) != (MAGIC, VERSION):
        raise UnknownFormat(_SECTION, 0, "not a series index of version 2")
    start = len(data) - TOC_BYTES
    toc = ByteReader(data, _SECTION, start).checked(TOC_BYTES - 4)
    positions = _Contents(*(toc.u64() for _ in _Contents._fields))
    in_file_order = sorted(positions)
    expected = [0, 1, 2, 4, 3, 5, 6]
    if in_file_order != [positions[i] for i in expected] or positions[0] != HEADER_BYTES or in_file_order[-1] > start:
        raise BadReference(
            _SECTION, start, "the parts of the table of contents are out of order or outside of the section"
        )
    return positions


def _sized_block(data: bytes, position: int) -> ByteReader:
    """Return the block ``u32 length | bytes | u32 CRC32C`` at a position, with its checksum verified."""
    reader = ByteReader(data, _SECTION, position, len(data) - TOC_BYTES)
    return reader.checked(reader.u32())


def _read_symbols(data: bytes, contents: _Contents) -> list[bytes]:
    block = _sized_block(data, contents.symbols)
    symbols = [block.text() for _ in range(block.count(1))]
    block.expect_end()
    if block.position + 4 != contents.series:
        raise BadReference(_SECTION, block.position, "the series do not start where the symbols end")
    if any(left >= right for left, right in pairwise(symbols)):
        raise BadObject(_SECTION, contents.symbols, "the symbols are not unique and sorted")
    return symbols


def _read_series(data: bytes, contents: _Contents, symbols: Sequence[bytes]) -> dict[int, IndexedSeries]:
    """Return the series by reference, which is the position of the entry divided by the alignment."""
    series: dict[int, IndexedSeries] = {}
    position = contents.series
    while position < contents.label_indices:
        position += -position % SERIES_ALIGNMENT
        reader = ByteReader(data, _SECTION, position, contents.label_indices)
        body = reader.checked(reader.uvarint())
        series[position // SERIES_ALIGNMENT] = _read_entry(body, symbols)
        position = reader.position
    return series


def _read_entry(body: ByteReader, symbols: Sequence[bytes]) -> IndexedSeries:
    fingerprint = body.u64()
    labels = tuple((_symbol(body, symbols), _symbol(body, symbols)) for _ in range(_small_count(body, 2)))
    chunk_count = _small_count(body, CHUNK_BYTES_MIN)
    if chunk_count != 1:
        raise UnknownFormat(_SECTION, body.position, f"a series has {chunk_count} chunks, expected 1")
    min_time = body.svarint()
    max_time = min_time + body.uvarint()
    body.uvarint()  # size in KB, always 0
    position = body.uvarint()
    body.u32()  # chunk checksum, always 0
    body.expect_end()
    if position >= 1 << 32 or max_time >= 1 << 63:
        raise LimitExceeded(_SECTION, body.position, "the number or time of the series is out of range")
    return IndexedSeries(fingerprint, labels, min_time, max_time, position)


def _small_count(reader: ByteReader, unit_bytes: int) -> int:
    start = reader.position
    count = reader.uvarint()
    if count * unit_bytes > reader.end - reader.position:
        raise LimitExceeded(_SECTION, start, f"{count} items do not fit in {reader.end - reader.position} bytes")
    return count


def _symbol(reader: ByteReader, symbols: Sequence[bytes]) -> bytes:
    start = reader.position
    ref = reader.uvarint()
    if ref >= len(symbols):
        raise BadReference(_SECTION, start, f"symbol {ref} of {len(symbols)}")
    return symbols[ref]


def _check_label_indices(data: bytes, contents: _Contents, symbols: Sequence[bytes]) -> None:
    table = _sized_block(data, contents.label_index_table)
    free = contents.label_indices
    for _ in range(table.count(3)):
        start = table.position
        _expect(table, 1)
        table.text()
        block = _list_at(data, table.uvarint(), free, contents.postings, start)
        free = block.end
        _expect_u32(block, 1)
        refs = [block.u32() for _ in range(block.count(4))]
        block.expect_end()
        if refs != sorted(set(refs)) or (refs and refs[-1] >= len(symbols)):
            raise BadReference(_SECTION, block.position, "label values do not ascend or are not symbols")
    table.expect_end()


def _read_postings(data: bytes, contents: _Contents, series: dict[int, IndexedSeries]) -> list[int]:
    """Verify every postings list; return the references of the list of all series."""
    table = _sized_block(data, contents.postings_table)
    everything: list[int] | None = None
    free = contents.postings
    for _ in range(table.count(4)):
        start = table.position
        _expect(table, 2)
        name, value = table.text(), table.text()
        block = _list_at(data, table.uvarint(), free, contents.label_index_table, start)
        free = block.end
        refs = [block.u32() for _ in range(block.count(4))]
        block.expect_end()
        _check_refs(refs, series, block.position)
        if not name and not value:
            everything = refs
    table.expect_end()
    if everything is None or len(everything) != len(series):
        raise BadReference(_SECTION, contents.postings_table, "the list of all series is incomplete")
    return everything


def _list_at(data: bytes, position: int, start: int, end: int, named_at: int) -> ByteReader:
    """Return the list that a table refers to; lists are consecutive in table order, so none is read twice."""
    if not start <= position < end:
        raise BadReference(
            _SECTION, named_at, f"a list at {position} is outside of the unread rest {start}..{end} of its part"
        )
    return _sized_block(data, position)


def _expect(reader: ByteReader, expected: int) -> None:
    start = reader.position
    if (found := reader.uvarint()) != expected:
        raise UnknownFormat(_SECTION, start, f"a table entry has {found} strings, expected {expected}")


def _expect_u32(reader: ByteReader, expected: int) -> None:
    start = reader.position
    if (found := reader.u32()) != expected:
        raise UnknownFormat(_SECTION, start, f"found {found}, expected {expected}")


def _check_refs(refs: Sequence[int], series: dict[int, IndexedSeries], offset: int) -> None:
    if any(left >= right for left, right in pairwise(refs)) or not all(r in series for r in refs):
        raise BadReference(_SECTION, offset, "a postings list does not ascend or refers to an unknown series")


def _check_fingerprint_offsets(data: bytes, contents: _Contents, series: dict[int, IndexedSeries]) -> None:
    block = _sized_block(data, contents.fingerprint_offsets)
    for _ in range(block.count(16)):
        start = block.position
        ref, fingerprint = block.u64(), block.u64()
        if ref not in series or series[ref].fingerprint != fingerprint:
            raise BadReference(_SECTION, start, "a fingerprint offset does not refer to its series")
    block.expect_end()


def encode_series_index(series: Sequence[IndexedSeries]) -> bytes:
    """Return the index of the series in this order; ``position`` is stored as SeriesIndex."""
    symbols = sorted({string for entry in series for label in entry.labels for string in label})
    symbol_refs = {symbol: ref for ref, symbol in enumerate(symbols)}
    out = bytearray(MAGIC.to_bytes(4, "big") + bytes([VERSION]))
    _add_sized(out, _u32(len(symbols)) + b"".join(_text(symbol) for symbol in symbols))
    series_start = len(out)
    series_refs = [_add_series(out, entry, symbol_refs) for entry in series]
    label_indices_start = len(out)
    label_index_table = _add_label_indices(out, series, symbol_refs)
    postings_start = len(out)
    postings_table = _add_postings(out, series, series_refs)
    label_index_table_start = len(out)
    _add_sized(out, label_index_table)
    postings_table_start = len(out)
    _add_sized(out, postings_table)
    fingerprint_offsets_start = len(out)
    _add_sized(out, _fingerprint_offsets(series, series_refs))
    contents = _Contents(
        symbols=HEADER_BYTES,
        series=series_start,
        label_indices=label_indices_start,
        label_index_table=label_index_table_start,
        postings=postings_start,
        postings_table=postings_table_start,
        fingerprint_offsets=fingerprint_offsets_start,
    )
    toc = b"".join(position.to_bytes(8, "big") for position in contents) + _time_range(series)
    return bytes(out + toc + _u32(crc32c(toc)))


def _u32(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _text(string: bytes) -> bytes:
    return encode_uvarint(len(string)) + string


def _add_sized(out: bytearray, body: bytes) -> None:
    out += _u32(len(body)) + body + _u32(crc32c(body))


def _add_aligned_list(out: bytearray, body: bytes) -> int:
    out += bytes(-len(out) % LIST_ALIGNMENT)
    position = len(out)
    _add_sized(out, body)
    return position


def _add_series(out: bytearray, entry: IndexedSeries, symbol_refs: dict[bytes, int]) -> int:
    """Append an entry and return its reference."""
    out += bytes(-len(out) % SERIES_ALIGNMENT)
    ref = len(out) // SERIES_ALIGNMENT
    body = bytearray(entry.fingerprint.to_bytes(8, "big") + encode_uvarint(len(entry.labels)))
    for name, value in entry.labels:
        body += encode_uvarint(symbol_refs[name]) + encode_uvarint(symbol_refs[value])
    body += (
        encode_uvarint(1) + encode_svarint(entry.min_time_ns) + encode_uvarint(entry.max_time_ns - entry.min_time_ns)
    )
    body += encode_uvarint(0) + encode_uvarint(entry.position) + _u32(0)
    out += encode_uvarint(len(body)) + body + _u32(crc32c(bytes(body)))
    return ref


def _add_label_indices(out: bytearray, series: Iterable[IndexedSeries], symbol_refs: dict[bytes, int]) -> bytes:
    """Append a label index per label name; return the body of their table."""
    values: dict[bytes, set[int]] = {}
    for entry in series:
        for name, value in entry.labels:
            values.setdefault(name, set()).add(symbol_refs[value])
    table = bytearray(_u32(len(values)))
    for name in sorted(values):
        refs = sorted(values[name])
        body = _u32(1) + _u32(len(refs)) + b"".join(map(_u32, refs))
        table += encode_uvarint(1) + _text(name) + encode_uvarint(_add_aligned_list(out, body))
    return bytes(table)


def _add_postings(out: bytearray, series: Sequence[IndexedSeries], series_refs: Sequence[int]) -> bytes:
    """Append the list of all series and one list per label; return the body of their table."""
    lists: dict[tuple[bytes, bytes], list[int]] = {}
    for entry, ref in zip(series, series_refs, strict=True):
        for label in dict.fromkeys(entry.labels):
            lists.setdefault(label, []).append(ref)
    in_order = [((b"", b""), list(series_refs)), *sorted((k, refs) for k, refs in lists.items() if k != (b"", b""))]
    table = bytearray(_u32(len(in_order)))
    for (name, value), refs in in_order:
        position = _add_aligned_list(out, _u32(len(refs)) + b"".join(map(_u32, refs)))
        table += encode_uvarint(2) + _text(name) + _text(value) + encode_uvarint(position)
    return bytes(table)


def _fingerprint_offsets(series: Sequence[IndexedSeries], series_refs: Sequence[int]) -> bytes:
    entries = range(0, len(series), FINGERPRINT_INTERVAL)
    body = bytearray(_u32(len(entries)))
    for number in entries:
        body += series_refs[number].to_bytes(8, "big") + series[number].fingerprint.to_bytes(8, "big")
    return bytes(body)


def _time_range(series: Iterable[IndexedSeries]) -> bytes:
    """Return the time range of all chunks; 0 means unset."""
    low = high = 0
    for entry in series:
        if low == 0 or entry.min_time_ns < low:
            low = entry.min_time_ns
        if high == 0 or entry.max_time_ns > high:
            high = entry.max_time_ns
    return low.to_bytes(8, "big", signed=True) + high.to_bytes(8, "big", signed=True)
