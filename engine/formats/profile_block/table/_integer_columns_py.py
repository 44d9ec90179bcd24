"""Integer columns of the symbols section, in plain Python: Parquet's DELTA_BINARY_PACKED.

A column is ``block size | mini blocks per block | count | first value`` and then, per block of deltas, the smallest
delta, one bit width per mini block, and the mini blocks packed low bit first. Deltas wrap at the column's width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.core.byte_reader import ByteReader
from engine.core.errors import BadObject, LimitExceeded

BLOCK_VALUES = 128
MINI_BLOCKS = 4
MINI_BLOCK_VALUES = BLOCK_VALUES // MINI_BLOCKS
BLOCK_VALUES_MAX = 1 << 12
"""No known writer uses larger blocks; a larger one would let a few bytes stand for many values."""


def decode_column(reader: ByteReader, count: int, bits: int) -> list[int]:
    """Return exactly ``count`` signed values of ``bits`` (32 or 64) bits; the reader must end with the column."""
    start = reader.position
    block_values, mini_blocks = reader.uvarint(), reader.uvarint()
    if not 0 < block_values <= BLOCK_VALUES_MAX or not 0 < mini_blocks <= block_values or block_values % mini_blocks:
        raise LimitExceeded(reader.section, start, f"a column in blocks of {block_values} values by {mini_blocks}")
    if (stored := reader.uvarint()) != count:
        raise BadObject(reader.section, start, f"a column of {stored} values where {count} are promised")
    value = _signed(reader.svarint(), bits)
    values = [value] if count else []
    while len(values) < count:
        for delta in _read_block(reader, block_values // mini_blocks, mini_blocks, count - len(values), bits):
            value = _signed(value + delta, bits)
            values.append(value)
    reader.expect_end()
    return values


def _read_block(reader: ByteReader, mini_values: int, mini_blocks: int, wanted: int, bits: int) -> Iterator[int]:
    """Yield up to ``wanted`` deltas of the next block."""
    smallest = reader.svarint()
    widths = reader.take(mini_blocks)
    for width in widths:
        if wanted <= 0:
            return
        if width > bits:
            raise BadObject(reader.section, reader.position, f"a bit width of {width} in a column of {bits} bits")
        packed = int.from_bytes(reader.take((mini_values * width + 7) // 8), "little")
        mask = (1 << width) - 1
        for i in range(min(mini_values, wanted)):
            yield smallest + (packed >> (i * width) & mask)
        wanted -= mini_values


def encode_column(values: Sequence[int], bits: int) -> bytes:
    """Write signed values in blocks of 128 by 4.

    In a partial last block the missing values count as 0 when deltas and their minimum are taken, and their packed bits
    are cleared afterwards; other writers of the format do so, and equal bytes need the same.
    """
    first = values[0] if values else 0
    out = bytearray(uvarint(BLOCK_VALUES) + uvarint(MINI_BLOCKS) + uvarint(len(values)) + svarint(first))
    for start in range(1, len(values), BLOCK_VALUES):
        block = values[start : start + BLOCK_VALUES]
        padded = [*block, *([0] * (BLOCK_VALUES - len(block)))]
        deltas = [_signed(b - a, bits) for a, b in zip([values[start - 1], *padded], padded, strict=False)]
        smallest = min(deltas)
        offsets = [(delta - smallest) % (1 << bits) for delta in deltas[: len(block)]]
        out += svarint(smallest) + _packed(offsets)
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


def uvarint(value: int) -> bytes:
    """Return an unsigned LEB128 number."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def svarint(value: int) -> bytes:
    """Return a zigzag-coded signed LEB128 number."""
    return uvarint(value << 1 if value >= 0 else (-value << 1) - 1)
