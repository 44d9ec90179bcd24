"""Bit streams of chunks, most significant bit first, with the number codes of native histograms."""

from __future__ import annotations

from engine.core.binary import encode_svarint, encode_uvarint
from engine.core.errors import BadObject, Truncated
from engine.formats.prometheus.model import UINT64_MASK

SECTION = "chunk"
PADDING_BITS_MAX = 8

VAR_WIDTHS = (0, 3, 6, 9, 12, 18, 25, 56, 64)
"""Payload bits of the histogram code, by the number of leading ones."""


def centred(payload: int, width: int) -> int:
    """Return the signed number of a payload: 2^(width-1) is positive, 64 bits are two's complement."""
    if width == 64:
        return payload - (1 << 64) if payload >> 63 else payload
    return payload - (1 << width) if payload > 1 << (width - 1) else payload


def fits_centred(value: int, width: int) -> bool:
    """Return whether ``centred`` can represent a number in ``width`` bits."""
    return -(1 << (width - 1)) < value <= 1 << (width - 1)


class BitReader:
    """Reads numbers from ``data`` from a byte on; ``position`` and ``end`` are in bits."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, byte: int = 0) -> None:
        self.data = data
        self.position = 8 * byte
        self.end = 8 * len(data)
        if self.position > self.end:
            raise Truncated(SECTION, len(data), "the chunk ends inside its header")

    @property
    def left(self) -> int:
        """Return the number of unread bits."""
        return self.end - self.position

    def bits(self, count: int) -> int:
        """Return the next ``count`` bits as an unsigned number."""
        start = self.position
        stop = start + count
        if stop > self.end:
            raise Truncated(SECTION, start >> 3, f"{count} bits expected, {self.end - start} left")
        self.position = stop
        last = (stop + 7) >> 3
        taken = int.from_bytes(self.data[start >> 3 : last], "big") >> (8 * last - stop)
        return taken & ((1 << count) - 1)

    def ones(self, most: int) -> int:
        """Read ones up to a terminating zero, or up to ``most`` ones; return their number."""
        for count in range(most):
            if not self.bits(1):
                return count
        return most

    def uvarint(self) -> int:
        """Return a LEB128 number, which need not be aligned to bytes."""
        start = self.position
        value = shift = 0
        while True:
            byte = self.bits(8)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                break
        if byte >= 0x80 or value > UINT64_MASK:
            raise BadObject(SECTION, start >> 3, "a varint is longer than 64 bits")
        return value

    def svarint(self) -> int:
        """Return a zigzag-encoded number."""
        value = self.uvarint()
        return value >> 1 ^ -(value & 1)

    def vuint(self) -> int:
        """Return an unsigned number in the histogram code."""
        return self.bits(VAR_WIDTHS[self.ones(8)])

    def vint(self) -> int:
        """Return a signed number in the histogram code."""
        width = VAR_WIDTHS[self.ones(8)]
        return centred(self.bits(width), width) if width else 0

    def expect_padding(self) -> None:
        """Raise BadObject unless at most eight bits, all zero, follow the last sample."""
        at, left = self.position >> 3, self.left
        if left > PADDING_BITS_MAX:
            raise BadObject(SECTION, at, f"{left} bits follow the last sample")
        if self.bits(left):
            raise BadObject(SECTION, at, "the bits after the last sample are not zero")


class BitWriter:
    """Appends numbers to a bit stream."""

    __slots__ = ("_ends_in_byte", "_out", "_pending", "_pending_bits")

    def __init__(self, header: bytes = b"") -> None:
        self._out = bytearray(header)
        self._pending = 0
        self._pending_bits = 0
        self._ends_in_byte = False

    def bits(self, value: int, count: int) -> None:
        """Append the low ``count`` bits of a number."""
        self._pending = self._pending << count | value & (1 << count) - 1
        self._pending_bits += count
        whole, rest = divmod(self._pending_bits, 8)
        if whole:
            self._out += (self._pending >> rest).to_bytes(whole, "big")
            self._pending &= (1 << rest) - 1
            self._pending_bits = rest
        if count:
            self._ends_in_byte = count % 8 == 0

    def ones(self, count: int, most: int) -> None:
        """Append ``count`` ones and, if there are fewer than ``most``, the terminating zero."""
        value = (1 << count) - 1
        if count < most:
            self.bits(value << 1, count + 1)
        else:
            self.bits(value, count)

    def uvarint(self, value: int) -> None:
        """Append a number in LEB128."""
        for byte in encode_uvarint(value):
            self.bits(byte, 8)

    def svarint(self, value: int) -> None:
        """Append a zigzag-encoded number."""
        for byte in encode_svarint(value):
            self.bits(byte, 8)

    def vuint(self, value: int) -> None:
        """Append an unsigned 64-bit number in the shortest histogram code."""
        self._coded(value, next(ones for ones, width in enumerate(VAR_WIDTHS) if value < 1 << width))

    def vint(self, value: int) -> None:
        """Append a signed 64-bit number in the shortest histogram code."""
        fitting = (ones for ones, width in enumerate(VAR_WIDTHS[1:-1], 1) if fits_centred(value, width))
        self._coded(value, next(fitting, 8) if value else 0)

    def finished(self) -> bytes:
        """Return the bytes, with the zero byte that Prometheus appends if the last number ended at a byte boundary."""
        if self._pending_bits:
            return bytes(self._out) + (self._pending << 8 - self._pending_bits).to_bytes(1, "big")
        return bytes(self._out) + (b"\x00" if self._ends_in_byte else b"")

    def _coded(self, value: int, ones: int) -> None:
        self.ones(ones, 8)
        self.bits(value, VAR_WIDTHS[ones])
