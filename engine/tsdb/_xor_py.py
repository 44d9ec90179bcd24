"""Twin of the XOR chunk codec: plain Python, the definition."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.profiles.errors import BadObject, LimitExceeded
from engine.tsdb.bit_stream import SECTION, BitReader, centred
from engine.tsdb.model import signed64

Times = npt.NDArray[np.int64]
ValueBits = npt.NDArray[np.uint64]

DOD_WIDTHS = (0, 14, 17, 20, 64)
"""Payload bits of a change of the time step, by how many ones stand before them."""
LEAST_BITS_PER_SAMPLE = 2
COUNT_BYTES = 2


def decode_xor(data: bytes) -> tuple[Times, ValueBits]:
    """Return the times and the values' bits of a float chunk; a BadObject unless the bytes are exactly that."""
    reader = BitReader(data, COUNT_BYTES)
    count = int.from_bytes(data[:COUNT_BYTES], "big")
    if count == 0:
        raise BadObject(SECTION, 0, "a chunk without samples")
    if count * LEAST_BITS_PER_SAMPLE > reader.left:
        raise LimitExceeded(SECTION, 0, f"{count} samples cannot be in {len(data)} bytes")
    times, values = array("q"), array("Q")
    for time, value in _samples(reader, count):
        times.append(time)
        values.append(value)
    reader.expect_padding()
    return np.array(times, np.int64), np.array(values, np.uint64)


def _samples(reader: BitReader, count: int) -> Iterator[tuple[int, int]]:
    time, step = reader.svarint(), 0
    column = XorReader(reader)
    yield time, column.value
    for position in range(1, count):
        if position == 1:
            step = reader.uvarint()
        else:
            width = DOD_WIDTHS[reader.ones(4)]
            step += centred(reader.bits(width), width) if width else 0
        time = signed64(time + step)
        yield time, column.next()


class XorReader:
    """A column of 64-bit patterns, each stored as its difference from the one before; begins with the first."""

    __slots__ = ("_low_zeros", "_reader", "_width", "value")

    def __init__(self, reader: BitReader) -> None:
        self._reader = reader
        self._width = 0  # no window of significant bits yet
        self._low_zeros = 0
        self.value = reader.bits(64)

    def next(self) -> int:
        """Read the next value."""
        reader = self._reader
        if not reader.bits(1):
            return self.value
        if reader.bits(1):
            self._open_window()
        elif not self._width:
            raise BadObject(SECTION, reader.position >> 3, "a value uses the window of none before it")
        self.value ^= reader.bits(self._width) << self._low_zeros
        return self.value

    def _open_window(self) -> None:
        reader = self._reader
        high_zeros = reader.bits(5)
        width = reader.bits(6) or 64
        if high_zeros + width > 64:
            raise BadObject(SECTION, reader.position >> 3, f"a window of {high_zeros} + {width} bits")
        self._width, self._low_zeros = width, 64 - high_zeros - width
