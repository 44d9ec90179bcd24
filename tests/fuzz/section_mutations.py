"""Damages sections of a profile dataset, checksums repaired, so that what is behind the checksums is tried too."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Iterator

import pyarrow.parquet as pq

from engine.core.checksums import crc32c
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableReader

SYMBOL_FOOTER_BYTES = 24
SYMBOL_INDEX_HEADER_BYTES = 32
SERIES_TOC_BYTES = 76
LARGE = (0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return the data with one to four changes: bytes flipped, set, cut out, doubled or moved, or large numbers."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        if not out:
            break
        at = draw.randrange(len(out))
        span = min(draw.choice((1, 2, 4, 8, 40)), len(out) - at)
        kind = draw.randrange(6)
        if kind == 0:
            out[at] ^= 1 << draw.randrange(8)
        elif kind == 1:
            out[at] = draw.randrange(256)
        elif kind == 2:
            del out[at : at + span]
        elif kind == 3:
            out[at:at] = out[at : at + span]
        elif kind == 4:
            source = draw.randrange(len(out))
            out[at : at + span] = out[source : source + span].ljust(span, b"\0")
        else:
            number = draw.choice(LARGE).to_bytes(8, draw.choice(("big", "little")))
            out[at : at + span] = number.ljust(span, b"\xff")[:span]
    return bytes(out)


def same_length(data: bytes, draw: random.Random) -> bytes:
    """Return the data with one to four bytes or small numbers changed, its length kept."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(out))
        span = min(draw.choice((1, 1, 2, 4, 8)), len(out) - at)
        number = draw.choice((*LARGE, 0, 1, draw.randrange(256))).to_bytes(8, "big")
        out[at : at + span] = number[-span:]
    return bytes(out)


def _put_crc(out: bytearray, start: int, end: int, at: int) -> None:
    if 0 <= start <= end <= len(out) and 0 <= at <= len(out) - 4:
        out[at : at + 4] = crc32c(bytes(out[start:end])).to_bytes(4, "big")


def _number(data: bytes | bytearray, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def damaged_symbols(data: bytes, draw: random.Random) -> bytes:
    """Change bytes of a symbols section and repair every checksum that its old structure has."""
    out = bytearray(same_length(data, draw))
    footer = len(data) - SYMBOL_FOOTER_BYTES
    index = _number(data, footer + 8, 8)
    for crc_at, start, size, headers in _symbol_ranges(data, index):
        for header in headers:
            _put_crc(out, start + header[0], start + header[0] + header[1] - 4, start + header[0] + header[1] - 4)
        if draw.random() < 0.9:
            _put_crc(out, start, start + size, crc_at)
    _put_crc(out, index, footer - 4, footer - 4)
    _put_crc(out, footer, footer + 20, footer + 20)
    return bytes(out)


def _symbol_ranges(data: bytes, index: int) -> Iterator[tuple[int, int, int, list[tuple[int, int]]]]:
    """Yield (place of the checksum, start, size, first block's header) of every tree and table of an intact section."""
    at = index + SYMBOL_INDEX_HEADER_BYTES
    partitions = _number(data, at, 4)
    at += 4
    for _ in range(partitions):
        trees = _number(data, at + 8, 4)
        at += 12
        for _ in range(trees):
            yield at + 60, _number(data, at, 8), _number(data, at + 8, 8), []
            at += 64
        for _ in range(4):
            size = _number(data, at + 8, 4)
            yield at + 12, _number(data, at, 8), size, [(0, _number(data, at + 24, 2))] if size else []
            at += 32


def damaged_series_index(data: bytes, draw: random.Random) -> bytes:
    """Change bytes of a series index and repair the checksums of its blocks and its table of contents."""
    out = bytearray(same_length(data, draw))
    toc = len(data) - SERIES_TOC_BYTES
    symbols, series, label_indices, *blocks = (_number(data, toc + 8 * i, 8) for i in range(7))
    for start in (symbols, *blocks):
        for block in _sized_blocks(data, start, toc):
            _put_crc(out, block + 4, block + 4 + _number(data, block, 4), block + 4 + _number(data, block, 4))
    for start, size in _series_entries(data, series, label_indices):
        _put_crc(out, start, start + size, start + size)
    _put_crc(out, toc, len(data) - 4, len(data) - 4)
    return bytes(out)


def _sized_blocks(data: bytes, start: int, end: int) -> Iterator[int]:
    """Yield where blocks of ``u32 length | bytes | u32 checksum`` start, one aligned after the other."""
    while start + 8 < end:
        start += -start % 4
        size = _number(data, start, 4)
        if start + 8 + size > end or crc32c(data[start + 4 : start + 4 + size]) != _number(data, start + 4 + size, 4):
            return
        yield start
        start += 8 + size


def _series_entries(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        start += -start % 16
        size = data[start]
        start += 1
        if size >= 0x80:
            size = size & 0x7F | data[start] << 7
            start += 1
        yield start, size
        start += size + 4


def without_page_checksums(data: bytes, draw: random.Random) -> bytes:
    """Return a profile table written again by pyarrow in some layout, its pages without checksums."""
    out = io.BytesIO()
    dictionary = ["Samples.list.element.SpanID", "Samples.list.element.TraceID"]
    deltas = ["SeriesIndex", "TotalValue", "Samples.list.element.StacktraceID", "Samples.list.element.Value"]
    text = {
        f"Annotations.list.element.{name}": draw.choice(("PLAIN", "DELTA_LENGTH_BYTE_ARRAY"))
        for name in ("Key", "Value")
    }
    options = {
        "compression": "NONE",
        "data_page_version": draw.choice(("1.0", "2.0")),
        "use_dictionary": draw.choice((False, dictionary)),
        "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED") | text,
        "write_page_index": draw.random() < 0.5,
    }
    with pq.ParquetWriter(out, SCHEMA, store_schema=False, **options) as writer:
        for batch in ProfileTableReader(data).batches():
            writer.write_batch(batch)
    return out.getvalue()


Damage = Callable[[bytes, random.Random], bytes]
