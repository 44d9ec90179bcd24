"""Codec of the blocks of symbol tables in pure Python; a block has up to 1024 items.

Every block starts with a header: the number of items, the sizes of the columns, and a CRC32C of the header.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from engine.core.binary import ByteReader
from engine.core.checksums import crc32c
from engine.core.errors import LimitExceeded, UnknownFormat
from engine.formats.profile_block.model import Function, Location, Mapping
from engine.formats.profile_block.table._integer_columns_py import decode_column, encode_column

ITEMS_PER_BLOCK: Final = 1024
STRING_BYTES_MAX: Final = (1 << 16) - 1
LINES_MAX: Final = 255
_U64 = 1 << 64


def _header(reader: ByteReader, size: int, expected: int) -> ByteReader:
    """Return a reader of the header fields after the count; checksum and count are verified."""
    start = reader.position
    header = reader.checked(size - 4)
    if (count := header.u32()) != expected:
        raise LimitExceeded(reader.section, start, f"a block has {count} items, expected {expected}")
    return header


def _with_crc(header: bytes) -> bytes:
    return header + crc32c(header).to_bytes(4, "big")


def _u32s(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


def _column(reader: ByteReader, size: int, count: int, bits: int) -> list[int]:
    start = reader.position
    reader.take(size)
    return decode_column(ByteReader(reader.data, reader.section, start, start + size), count, bits)


def _unsigned_column(reader: ByteReader, size: int, count: int) -> list[int]:
    """Return a 64-bit column of unsigned numbers, which is omitted if all are 0."""
    return [value % _U64 for value in _column(reader, size, count, 64)] if size else [0] * count


def _encode_unsigned(values: Sequence[int]) -> bytes:
    if not any(values):
        return b""
    return encode_column([value - _U64 if value >> 63 else value for value in values], 64)


def read_strings(reader: ByteReader, count: int) -> list[bytes]:
    """Return the strings of a block; byte 4 of its header has no meaning (uninitialised in other writers)."""
    start = reader.position
    header = _header(reader, 12, count)
    header.u8()
    width = header.u8()
    if width not in (8, 16):
        raise UnknownFormat(reader.section, start, f"string lengths have {width} bits, expected 8 or 16")
    unit = width // 8
    lengths = reader.take(count * unit)
    ends = [int.from_bytes(lengths[i : i + unit], "big") for i in range(0, len(lengths), unit)]
    return [reader.take(length) for length in ends]


def write_strings(strings: Sequence[bytes]) -> bytes:
    """Return a block of strings; byte 4 of the header is the length byte that the reference writer leaves there."""
    longest = max(map(len, strings))
    if longest > STRING_BYTES_MAX:
        raise LimitExceeded("symbols", -1, f"a string of {longest} bytes exceeds the maximum of {STRING_BYTES_MAX}")
    unit = 2 if longest > 255 else 1
    lengths = b"".join(len(string).to_bytes(unit, "big") for string in strings)
    leftover = lengths[4] if len(lengths) > 4 else 0
    header = _u32s(len(strings)) + bytes([leftover, unit * 8, 0, 0])
    return _with_crc(header) + lengths + b"".join(strings)


def read_functions(reader: ByteReader, count: int) -> list[Function]:
    """Return the functions of a block."""
    header = _header(reader, 24, count)
    columns = [_column(reader, header.u32(), count, 32) for _ in range(4)]
    return [Function(*row) for row in zip(*columns, strict=True)]


def write_functions(functions: Sequence[Function]) -> bytes:
    """Return a block of functions."""
    columns = [encode_column(column, 32) for column in zip(*functions, strict=True)]
    return _with_crc(_u32s(len(functions), *map(len, columns))) + b"".join(columns)


def read_mappings(reader: ByteReader, count: int) -> list[Mapping]:
    """Return the mappings of a block."""
    header = _header(reader, 32, count)
    columns = [_column(reader, header.u32(), count, 32) for _ in range(3)]
    columns += [_unsigned_column(reader, header.u32(), count) for _ in range(3)]
    return [Mapping(*row) for row in zip(*columns, strict=True)]


def write_mappings(mappings: Sequence[Mapping]) -> bytes:
    """Return a block of mappings."""
    columns = list(zip(*mappings, strict=True))
    encoded = [encode_column(column, 32) for column in columns[:3]]
    encoded += [_encode_unsigned(column) for column in columns[3:]]
    return _with_crc(_u32s(len(mappings), *map(len, encoded))) + b"".join(encoded)


def read_locations(reader: ByteReader, count: int, charge_lines: Callable[[int], None]) -> list[Location]:
    """Return the locations of a block; ``charge_lines`` is called with the number of lines before they are decoded."""
    start = reader.position
    header = _header(reader, 28, count)
    mapping_size, line_count, lines_size, address_size, folded_size = (header.u32() for _ in range(5))
    mappings = _column(reader, mapping_size, count, 32)
    line_counts = reader.take(count)
    if sum(line_counts) != line_count:
        raise LimitExceeded(reader.section, start, f"{line_count} lines, but the line counts sum to {sum(line_counts)}")
    charge_lines(line_count)
    numbers = _column(reader, lines_size, 2 * line_count, 32)
    addresses = _unsigned_column(reader, address_size, count)
    folded = int.from_bytes(reader.take(folded_size)[: count // 8 + 1], "little")
    lines = list(zip(numbers[::2], numbers[1::2], strict=True))
    locations, first = [], 0
    for i in range(count):
        end = first + line_counts[i]
        locations.append(Location(mappings[i], addresses[i], tuple(lines[first:end]), bool(folded >> i & 1)))
        first = end
    return locations


def write_locations(locations: Sequence[Location]) -> bytes:
    """Return a block of locations."""
    if any(len(location.lines) > LINES_MAX for location in locations):
        raise LimitExceeded("symbols", -1, f"a location has more than {LINES_MAX} lines")
    numbers = [number for location in locations for line in location.lines for number in line]
    mapping_column = encode_column([location.mapping for location in locations], 32)
    lines_column = encode_column(numbers, 32)
    address_column = _encode_unsigned([location.address for location in locations])
    folded_bits = sum(1 << i for i, location in enumerate(locations) if location.is_folded)
    folded = folded_bits.to_bytes(len(locations) // 8 + 1, "little") if folded_bits else b""
    sizes = (len(mapping_column), len(numbers) // 2, len(lines_column), len(address_column), len(folded))
    line_counts = bytes(len(location.lines) for location in locations)
    header = _with_crc(_u32s(len(locations), *sizes))
    return header + mapping_column + line_counts + lines_column + address_column + folded
