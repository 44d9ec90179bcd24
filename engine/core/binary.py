"""Bounds-checked readers of untrusted bytes, whose errors name section and offset, and encoders of varints."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, ChecksumMismatch, LimitExceeded, Truncated

_U64_MAX = (1 << 64) - 1
Data = TypeVar("Data", bytes, memoryview)


class CheckedReader(Generic[Data]):
    """A cursor over ``data[position:end]``; fixed-width integers are big endian, varints LEB128.

    ``position`` counts from the start of ``data`` (a section or a file) and is the offset that errors report.
    """

    __slots__ = ("data", "end", "position", "section")

    def __init__(self, data: Data, section: str, position: int = 0, end: int | None = None) -> None:
        self.data: Data = data
        self.section = section
        self.position = position
        self.end = len(data) if end is None else end
        if not 0 <= position <= self.end <= len(data):
            raise Truncated(section, position, f"bytes {position} to {self.end} are outside of {len(data)} bytes")

    @property
    def left(self) -> int:
        """Return the number of unread bytes."""
        return self.end - self.position

    def take(self, count: int) -> Data:
        """Return the next ``count`` bytes (a view if ``data`` is a memoryview); raise Truncated if there are fewer."""
        start = self.position
        if count < 0 or count > self.end - start:
            raise Truncated(self.section, start, f"{count} bytes expected, {self.end - start} left")
        self.position = start + count
        return self.data[start : self.position]

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def uvarint(self) -> int:
        """Return an unsigned varint; raise BadObject if it does not fit in 64 bits."""
        start = self.position
        value = shift = 0
        while True:
            byte = self.u8()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                break
        if byte >= 0x80 or value > _U64_MAX:
            raise BadObject(self.section, start, "a varint is longer than 64 bits")
        return value

    def svarint(self) -> int:
        """Return a zigzag-coded signed 64-bit varint."""
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def bounded(self, count: int, unit_bytes: int, what: str, offset: int) -> int:
        """Return ``count``, which was read at ``offset``.

        Raises LimitExceeded if ``count`` items of at least ``unit_bytes`` each do not fit in the unread bytes.
        """
        if count * unit_bytes > self.left:
            raise LimitExceeded(self.section, offset, f"{count} {what} cannot be in {self.left} bytes")
        return count

    def text(self) -> bytes:
        """Return a copy of a string that is prefixed with its length as a varint."""
        return bytes(self.take(self.uvarint()))

    def checked(self, size: int) -> Self:
        """Return a cursor over the next ``size`` bytes after verifying the u32 CRC32C that follows them."""
        start = self.position
        body = self.take(size)
        self.check_crc(start, crc32c(body), self.u32())
        return type(self)(self.data, self.section, start, start + size)

    def check_crc(self, offset: int, computed: int, stored: int) -> None:
        """Raise ChecksumMismatch if the two differ."""
        if computed != stored:
            reason = f"stored checksum {stored:08x}, computed {computed:08x}"
            raise ChecksumMismatch(self.section, offset, reason)

    def expect_end(self) -> None:
        """Raise BadObject if bytes are left unread."""
        if self.position != self.end:
            raise BadObject(self.section, self.position, f"{self.left} unexpected bytes at the end")


class ByteReader(CheckedReader[bytes]):
    """A cursor over ``bytes`` with the integer widths of profile objects."""

    __slots__ = ()

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def i64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def count(self, unit_bytes: int) -> int:
        """Return a u32 count of items of at least ``unit_bytes`` each; raise LimitExceeded if they cannot follow."""
        start = self.position
        return self.bounded(self.u32(), unit_bytes, "items", start)


def encode_uvarint(value: int) -> bytes:
    """Return an unsigned 64-bit number as LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_svarint(value: int) -> bytes:
    """Return a signed 64-bit number as zigzag-encoded LEB128."""
    return encode_uvarint((value << 1 ^ value >> 63) & _U64_MAX)
