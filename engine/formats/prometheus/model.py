"""What a block holds: series with labels and chunks, and what a chunk record is. Times are milliseconds."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[bytes, bytes], ...]
"""Name and value pairs ascending by name; raw bytes, never decoded."""

ENCODING_XOR = 1
ENCODING_HISTOGRAM = 2
ENCODING_FLOAT_HISTOGRAM = 3
ENCODING_XOR2 = 4
ENCODING_HISTOGRAM_START_TIMES = 5
ENCODING_FLOAT_HISTOGRAM_START_TIMES = 6
ENCODINGS = frozenset(range(ENCODING_XOR, ENCODING_FLOAT_HISTOGRAM_START_TIMES + 1))
FLOAT_ENCODINGS = frozenset({ENCODING_XOR, ENCODING_XOR2})
HISTOGRAM_ENCODINGS = frozenset({ENCODING_HISTOGRAM, ENCODING_FLOAT_HISTOGRAM})
DECODED_ENCODINGS = frozenset({ENCODING_XOR, *HISTOGRAM_ENCODINGS})
"""The others are carried as they are: their samples are never looked at."""
COUNT_BYTES = 2
COUNT_BITS_14 = frozenset({ENCODING_HISTOGRAM_START_TIMES, ENCODING_FLOAT_HISTOGRAM_START_TIMES})

STALE_NAN = 0x7FF0000000000002
"""Bits of the value that says a series has ended."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UINT64_MASK = (1 << 64) - 1


class ChunkMeta(NamedTuple):
    """A chunk as the index knows it: first and last sample's time (closed), and where it lies."""

    min_time_ms: int
    max_time_ms: int
    ref: int


class Series(NamedTuple):
    """One entry of the series section. ``id`` is its place in this index, which postings and tombstones use."""

    id: int
    labels: Labels
    chunks: tuple[ChunkMeta, ...]


class Chunk(NamedTuple):
    """A record of a chunk file whose checksum was found right."""

    encoding: int
    data: bytes

    @property
    def sample_count(self) -> int:
        """Return how many samples the chunk says it has."""
        count = int.from_bytes(self.data[:2], "big")
        return count & 0x3FFF if self.encoding in COUNT_BITS_14 else count


def signed64(value: int) -> int:
    """Return the low 64 bits of a number as a signed number."""
    value &= UINT64_MASK
    return value - (1 << 64) if value >> 63 else value
