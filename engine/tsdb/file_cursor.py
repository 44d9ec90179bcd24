"""Reads numbers from a part of a mapped file that nobody vouches for; errors name the file and the absolute offset."""

from __future__ import annotations

from engine.profiles.errors import BadObject, ChecksumMismatch, LimitExceeded, Truncated
from engine.tsdb.checksums import crc32c
from engine.tsdb.model import UINT64_MASK


class FileCursor:
    """A cursor over ``data[position:end]``; fixed integers are big endian, varints LEB128."""

    __slots__ = ("data", "end", "position", "section")

    def __init__(self, data: memoryview, section: str, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.section = section
        self.position = position
        self.end = len(data) if end is None else end
        if not 0 <= position <= self.end <= len(data):
            raise Truncated(section, position, f"bytes {position} to {self.end} are not inside {len(data)}")

    @property
    def left(self) -> int:
        """Return the bytes left."""
        return self.end - self.position

    def take(self, count: int) -> memoryview:
        """Return the next ``count`` bytes, not copied."""
        start = self.position
        if count < 0 or count > self.end - start:
            raise Truncated(self.section, start, f"{count} bytes wanted, {self.end - start} left")
        self.position = start + count
        return self.data[start : self.position]

    def u8(self) -> int:
        return self.take(1)[0]

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "big")

    def uvarint(self) -> int:
        """Return an unsigned 64-bit varint; longer or larger ones are refused."""
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
        if byte >= 0x80 or value > UINT64_MASK:
            raise BadObject(self.section, start, "a varint is longer than 64 bits")
        return value

    def svarint(self) -> int:
        """Return a zigzag-coded signed 64-bit varint."""
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def count(self, count: int, unit_bytes: int, what: str) -> int:
        """Return ``count``, refused if so many items of at least ``unit_bytes`` cannot follow."""
        if count * unit_bytes > self.left:
            raise LimitExceeded(self.section, self.position, f"{count} {what} cannot be in {self.left} bytes")
        return count

    def text(self) -> bytes:
        """Return a copy of a string with its length before it as a varint."""
        return bytes(self.take(self.uvarint()))

    def checked(self, size: int) -> FileCursor:
        """Return a cursor over the next ``size`` bytes after comparing the CRC32C that follows them."""
        start = self.position
        body = self.take(size)
        stored, computed = self.u32(), crc32c(body)
        if stored != computed:
            reason = f"stored checksum {stored:08x}, the bytes have {computed:08x}"
            raise ChecksumMismatch(self.section, start, reason)
        return FileCursor(self.data, self.section, start, start + size)

    def expect_end(self) -> None:
        """Refuse bytes that nothing accounts for."""
        if self.position != self.end:
            raise BadObject(self.section, self.position, f"{self.left} bytes too many")

    def skip_zeros(self, alignment: int) -> None:
        """Step to the next multiple of ``alignment`` in the file over bytes that must be zero."""
        start = self.position
        if any(self.take(min(-start % alignment, self.left))):
            raise BadObject(self.section, start, "the padding is not zero")
