"""Where the parts of an index lie: magic, version, table of contents, and the limits of what is read."""

from __future__ import annotations

from typing import NamedTuple

from engine.core.errors import BadObject, Truncated, UnknownFormat
from engine.formats.prometheus.file_cursor import FileCursor

SECTION = "index"
MAGIC = 0xBAAAD700
VERSION = 2
HEADER_BYTES = 5
CONTENTS_BYTES = 48
CRC_BYTES = 4
SERIES_ALIGNMENT = 16
LIST_ALIGNMENT = 4
LABEL_ENTRY_KEYS = 1
POSTINGS_ENTRY_KEYS = 2
SERIES_BYTES_MAX = 16 << 20
"""A series with two million chunks has fewer; more than a hundred years of samples."""
BATCH_BYTES_MAX = 4 << 20
"""Series are read some hundred at a time, fewer where they are long: a batch ends with the series that passes this."""
LABEL_BYTES_MAX = 16 << 20
"""One series' label names and values together: a small entry may name a huge symbol many times."""
INDEX_BYTES_MAX = 16 << 32
"""Series ids are 32 bits that count steps of 16."""


class TableOfContents(NamedTuple):
    """Where each part begins, in the order of the table (which is not the order of the file)."""

    symbols: int
    series: int
    label_indices: int
    label_offset_table: int
    postings: int
    postings_offset_table: int


def read_table_of_contents(data: memoryview) -> TableOfContents:
    """Check an index's header and return its table of contents, whose parts follow one another inside the file."""
    header = FileCursor(data, SECTION)
    if (magic := header.u32()) != MAGIC:
        raise UnknownFormat(SECTION, 0, f"magic number {magic:08x}, expected {MAGIC:08x}")
    if (version := header.u8()) != VERSION:
        raise UnknownFormat(SECTION, 4, f"version {version}, only {VERSION} is known")
    start = len(data) - CONTENTS_BYTES - CRC_BYTES
    if start < HEADER_BYTES:
        raise Truncated(SECTION, len(data), "the file is too short for a table of contents")
    cursor = FileCursor(data, SECTION, start).checked(CONTENTS_BYTES)
    contents = TableOfContents(*(cursor.u64() for _ in TableOfContents._fields))
    in_file_order = (
        HEADER_BYTES,
        contents.symbols,
        contents.series,
        contents.label_indices,
        contents.postings,
        contents.label_offset_table,
        contents.postings_offset_table,
        start,
    )
    if contents.symbols != HEADER_BYTES or list(in_file_order) != sorted(in_file_order):
        raise BadObject(SECTION, start, f"the parts are not one after the other: {contents}")
    return contents
