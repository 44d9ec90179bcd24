"""Layout of an index: header, table of contents, and the limits of its readers."""

from __future__ import annotations

from typing import NamedTuple

from engine.core.errors import BadObject, Truncated, UnknownFormat
from engine.formats.prometheus.mapped_file import FileCursor

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
"""Maximum size of a series entry; one with two million chunks (a hundred years of samples) is smaller."""
BATCH_BYTES_MAX = 4 << 20
"""A batch of series ends with the series that reaches this size."""
LABEL_BYTES_MAX = 16 << 20
"""Maximum size of the label names and values of a series: a small entry may refer to a huge symbol many times."""
INDEX_BYTES_MAX = 16 << 32
"""Series ids are 32-bit multiples of 16 bytes."""


class TableOfContents(NamedTuple):
    """The position of each part, in the order of the table (which is not that of the file)."""

    symbols: int
    series: int
    label_indices: int
    label_offset_table: int
    postings: int
    postings_offset_table: int


def read_table_of_contents(data: memoryview) -> TableOfContents:
    """Verify the header of an index and return its table of contents, whose parts must be consecutive."""
    header = FileCursor(data, SECTION)
    if (magic := header.u32()) != MAGIC:
        raise UnknownFormat(SECTION, 0, f"magic number {magic:08x}, expected {MAGIC:08x}")
    if (version := header.u8()) != VERSION:
        raise UnknownFormat(SECTION, 4, f"version {version} is not supported, expected {VERSION}")
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
        raise BadObject(SECTION, start, f"the parts are not consecutive: {contents}")
    return contents
