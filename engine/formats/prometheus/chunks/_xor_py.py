"""Reference implementation of the XOR chunk codec in pure Python."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject, LimitExceeded
from engine.formats.prometheus.chunks.bit_stream import SECTION, BitReader, BitWriter, centred, fits_centred
from engine.formats.prometheus.model import COUNT_BYTES, UINT64_MASK, signed64

Times = npt.NDArray[np.int64]
ValueBits = npt.NDArray[np.uint64]

DOD_WIDTHS = (0, 14, 17, 20, 64)
"""Payload bits of a delta of deltas of times, by the number of leading ones."""
LEAST_BITS_PER_SAMPLE = 2
COUNT_MAX = (1 << 16) - 1
HIGH_ZEROS_MAX = 31


def decode_xor(data: bytes) -> tuple[Times, ValueBits]:
    """Return times and bit patterns of values of a float chunk. Raises BadObject if the bytes are invalid."""
    reader = BitReader(data, COUNT_BYTES)
    count = int.from_bytes(data[:COUNT_BYTES], "big")
    if count == 0:
        raise BadObject(SECTION, 0, "the chunk has no samples")
    if count * LEAST_BITS_PER_SAMPLE > reader.left:
        raise LimitExceeded(SECTION, 0, f"{count} samples do not fit in {len(data)} bytes")
    times, values = array("q"), array("Q")
    for time, value in _samples(reader, count):
        times.append(time)
        values.append(value)
    reader.expect_padding()
    return np.array(times, np.int64), np.array(values, np.uint64)


def encode_xor(times: Times, values: ValueBits) -> bytes:
    """Return the chunk of these samples, byte-identical to Prometheus. Raises LimitExceeded for none or too many."""
    count = len(times)
    if not 0 < count <= COUNT_MAX or len(values) != count:
        raise LimitExceeded(SECTION, -1, f"{count} times and {len(values)} values in a chunk")
    writer = BitWriter(count.to_bytes(COUNT_BYTES, "big"))
    column = XorWriter(writer)
    for position, (change, value) in enumerate(zip(_changes(times.tolist()), values.tolist(), strict=True)):
        if position == 0:
            writer.svarint(change)
        elif position == 1:
            writer.uvarint(change & UINT64_MASK)
        else:
            ones = _change_code(change)
            writer.ones(ones, 4)
            writer.bits(change, DOD_WIDTHS[ones])
        column.add(value)
    return writer.finished()


def _changes(times: Sequence[int]) -> Iterator[int]:
    """Yield the first time, the first delta, then the deltas of deltas."""
    time = step = 0
    for position, following in enumerate(times):
        following_step = following - time
        yield signed64(following_step - step)
        time, step = following, following_step if position else 0


def _change_code(change: int) -> int:
    if change == 0:
        return 0
    return next((ones for ones in (1, 2, 3) if fits_centred(change, DOD_WIDTHS[ones])), 4)


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
    """Reads a column of 64-bit patterns, each stored as XOR with its predecessor; starts with the first value."""

    __slots__ = ("_low_zeros", "_reader", "_width", "value")

    def __init__(self, reader: BitReader) -> None:
        self._reader = reader
        self._width = 0  # no window of significant bits is defined
        self._low_zeros = 0
        self.value = reader.bits(64)

    def next(self) -> int:
        """Return the next value."""
        reader = self._reader
        if not reader.bits(1):
            return self.value
        if reader.bits(1):
            self._open_window()
        elif not self._width:
            raise BadObject(SECTION, reader.position >> 3, "a value reuses a bit window that no earlier value defines")
        self.value ^= reader.bits(self._width) << self._low_zeros
        return self.value

    def _open_window(self) -> None:
        reader = self._reader
        high_zeros = reader.bits(5)
        width = reader.bits(6) or 64
        if high_zeros + width > 64:
            raise BadObject(SECTION, reader.position >> 3, f"a bit window of {high_zeros} + {width} exceeds 64 bits")
        self._width, self._low_zeros = width, 64 - high_zeros - width


class XorWriter:
    """Writes a column of 64-bit patterns, each as XOR with its predecessor."""

    __slots__ = ("_high_zeros", "_low_zeros", "_value", "_width", "_writer")

    def __init__(self, writer: BitWriter) -> None:
        self._writer = writer
        self._value: int | None = None
        self._width = 0  # no window of significant bits is defined
        self._high_zeros = self._low_zeros = 0

    def add(self, value: int) -> None:
        """Append a value; the current window is reused whenever it covers the significant bits, as Prometheus does."""
        writer = self._writer
        if self._value is None:
            writer.bits(value, 64)
            self._value = value
            return
        difference, self._value = self._value ^ value, value
        if difference == 0:
            writer.bits(0, 1)
            return
        high_zeros = min(64 - difference.bit_length(), HIGH_ZEROS_MAX)
        low_zeros = (difference & -difference).bit_length() - 1
        if self._width and high_zeros >= self._high_zeros and low_zeros >= self._low_zeros:
            writer.bits(0b10, 2)
        else:
            self._high_zeros, self._low_zeros = high_zeros, low_zeros
            self._width = 64 - high_zeros - low_zeros
            writer.bits(0b11, 2)
            writer.bits(high_zeros, 5)
            writer.bits(self._width, 6)
        writer.bits(difference >> self._low_zeros, self._width)
