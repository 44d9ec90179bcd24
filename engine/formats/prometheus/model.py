"""Types of a block: series with labels and chunks, and chunk records. Times are milliseconds."""

from __future__ import annotations

from typing import NamedTuple

Labels = tuple[tuple[bytes, bytes], ...]
"""Pairs of name and value, ascending by name; bytes, which are never decoded."""

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
"""Chunks of other encodings are copied without decoding their samples."""
COUNT_BYTES = 2
COUNT_BITS_14 = frozenset({ENCODING_HISTOGRAM_START_TIMES, ENCODING_FLOAT_HISTOGRAM_START_TIMES})

STALE_NAN = 0x7FF0000000000002
"""Bit pattern of the staleness marker, which ends a series."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UINT64_MASK = (1 << 64) - 1


class ChunkMeta(NamedTuple):
    """The index entry of a chunk: times of the first and the last sample (both inclusive), and its reference."""

    min_time_ms: int
    max_time_ms: int
    ref: int


class Series(NamedTuple):
    """An entry of the series section. ``id`` is its position in the index, which postings and tombstones refer to."""

    id: int
    labels: Labels
    chunks: tuple[ChunkMeta, ...]


class Chunk(NamedTuple):
    """A record of a chunk file with a verified checksum."""

    encoding: int
    data: bytes

    @property
    def sample_count(self) -> int:
        """Return the number of samples by the header of the chunk."""
        count = int.from_bytes(self.data[:2], "big")
        return count & 0x3FFF if self.encoding in COUNT_BITS_14 else count


def signed64(value: int) -> int:
    """Return the low 64 bits of a number as a signed integer."""
    value &= UINT64_MASK
    return value - (1 << 64) if value >> 63 else value
