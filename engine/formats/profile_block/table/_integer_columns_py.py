"""Codec of the integer columns of symbol tables (DELTA_BINARY_PACKED of Parquet) in pure Python.

A column is ``block size | mini blocks per block | count | first value`` and then, per block of deltas, the minimum
delta, one bit width per mini block, and the mini blocks packed lowest bit first. Deltas wrap at the column's width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core.binary import ByteReader, encode_svarint, encode_uvarint
from engine.core.errors import BadObject, LimitExceeded

BLOCK_VALUES = 128
MINI_BLOCKS = 4
MINI_BLOCK_VALUES = BLOCK_VALUES // MINI_BLOCKS
BLOCK_VALUES_MAX = 1 << 12
"""Larger than the blocks of all known writers; bounds the number of values that a few bytes can encode."""


def decode_column(reader: ByteReader, count: int, bits: int) -> list[int]:
    """Return exactly ``count`` signed values of ``bits`` (32 or 64) bits, up to the end of the reader."""
    start = reader.position
    block_values, mini_blocks = reader.uvarint(), reader.uvarint()
    if not 0 < block_values <= BLOCK_VALUES_MAX or not 0 < mini_blocks <= block_values or block_values % mini_blocks:
        raise LimitExceeded(reader.section, start, f"a column has blocks of {block_values} values by {mini_blocks}")
    if (stored := reader.uvarint()) != count:
        raise BadObject(reader.section, start, f"a column has {stored} values, expected {count}")
    value = _signed(reader.svarint(), bits)
    values = [value] if count else []
    while len(values) < count:
        for delta in _read_block(reader, block_values // mini_blocks, mini_blocks, count - len(values), bits):
            value = _signed(value + delta, bits)
            values.append(value)
    reader.expect_end()
    return values


def _read_block(reader: ByteReader, mini_values: int, mini_blocks: int, count: int, bits: int) -> Iterator[int]:
    """Yield up to ``count`` deltas of the next block."""
    minimum = reader.svarint()
    widths = reader.take(mini_blocks)
    for width in widths:
        if count <= 0:
            return
        if width > bits:
            raise BadObject(reader.section, reader.position, f"a bit width of {width} in a column of {bits} bits")
        packed = int.from_bytes(reader.take((mini_values * width + 7) // 8), "little")
        mask = (1 << width) - 1
        for i in range(min(mini_values, count)):
            yield minimum + (packed >> (i * width) & mask)
        count -= mini_values


def encode_column(values: Sequence[int], bits: int) -> bytes:
    """Return signed values in blocks of 128 with four mini blocks, byte-identical to the Go writer.

    In a partial last block, missing values count as 0 for the deltas and their minimum, and their packed bits are 0.
    """
    first = values[0] if values else 0
    header = (encode_uvarint(number) for number in (BLOCK_VALUES, MINI_BLOCKS, len(values)))
    out = bytearray(b"".join(header) + encode_svarint(first))
    for start in range(1, len(values), BLOCK_VALUES):
        block = values[start : start + BLOCK_VALUES]
        padded = [*block, *([0] * (BLOCK_VALUES - len(block)))]
        deltas = [_signed(b - a, bits) for a, b in zip([values[start - 1], *padded], padded, strict=False)]
        minimum = min(deltas)
        offsets = [(delta - minimum) % (1 << bits) for delta in deltas[: len(block)]]
        out += encode_svarint(minimum) + _packed(offsets)
    return bytes(out)


def _packed(offsets: Sequence[int]) -> bytes:
    """Return the widths and the packed mini blocks of one block."""
    groups = [offsets[start : start + MINI_BLOCK_VALUES] for start in range(0, BLOCK_VALUES, MINI_BLOCK_VALUES)]
    widths = [max(group, default=0).bit_length() for group in groups]
    body = bytearray(widths)
    for width, group in zip(widths, groups, strict=True):
        packed = sum(offset << (i * width) for i, offset in enumerate(group))
        body += packed.to_bytes(MINI_BLOCK_VALUES * width // 8, "little")
    return bytes(body)


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value
