"""Numbers of seven bits a byte, low bits first: what the files of a block write where a number may be small."""

from __future__ import annotations

from engine.formats.prometheus.model import UINT64_MASK


def uvarint(value: int) -> bytes:
    """Return an unsigned 64-bit number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def svarint(value: int) -> bytes:
    """Return a signed 64-bit number, zigzag-coded."""
    return uvarint((value << 1 ^ value >> 63) & UINT64_MASK)
