"""Codec of native histogram chunks (encodings 2 and 3): integer and float, counters and gauges.

Pure Python suffices: merges copy these chunks unless different ones overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.prometheus.chunks._xor_py import COUNT_MAX, XorReader, XorWriter
from engine.formats.prometheus.chunks.bit_stream import SECTION, BitReader, BitWriter
from engine.formats.prometheus.chunks.histogram_layout import decode_layout, encode_layout
from engine.formats.prometheus.chunks.histogram_model import (
    CounterReset,
    HistogramChunk,
    HistogramLayout,
    HistogramSample,
)
from engine.formats.prometheus.model import (
    COUNT_BYTES,
    ENCODING_FLOAT_HISTOGRAM,
    ENCODING_HISTOGRAM,
    STALE_NAN,
    UINT64_MASK,
    signed64,
)

HEADER_BYTES = 3
LEAST_BITS_PER_SAMPLE = 4
"""One bit each for time, count, zero count and sum."""
VALUES_MAX = 1 << 21
"""Maximum number of buckets in all samples of a chunk: they are bits in the file, but tens of bytes when decoded."""


def decode_histograms(encoding: int, data: bytes) -> HistogramChunk:
    """Return a decoded histogram chunk. Raises BadObject if the bytes are invalid."""
    if encoding not in (ENCODING_HISTOGRAM, ENCODING_FLOAT_HISTOGRAM):
        raise UnknownFormat(SECTION, 0, f"chunk encoding {encoding} is not one of histograms")
    reader = BitReader(data, HEADER_BYTES)
    count = int.from_bytes(data[:COUNT_BYTES], "big")
    if count == 0:
        raise BadObject(SECTION, 0, "the chunk has no samples")
    if count * LEAST_BITS_PER_SAMPLE > reader.left:
        raise LimitExceeded(SECTION, 0, f"{count} histograms do not fit in {len(data)} bytes")
    if data[COUNT_BYTES] & 0x3F:
        raise UnknownFormat(SECTION, COUNT_BYTES, f"unknown flags {data[COUNT_BYTES]:02x}")
    layout = decode_layout(reader)
    if count * (layout.positive_buckets + layout.negative_buckets) > VALUES_MAX:
        buckets = layout.positive_buckets + layout.negative_buckets
        raise LimitExceeded(SECTION, HEADER_BYTES, f"{count} histograms of {buckets} buckets exceed {VALUES_MAX}")
    read = _integer_samples if encoding == ENCODING_HISTOGRAM else _float_samples
    samples = tuple(read(reader, count, layout))
    reader.expect_padding()
    reset = CounterReset(data[COUNT_BYTES] >> 6)
    return HistogramChunk(encoding == ENCODING_FLOAT_HISTOGRAM, reset, layout, samples)


def _bucket_count(reader: BitReader, layout: HistogramLayout, bits_each: int) -> int:
    """Return the number of buckets of a sample; raise LimitExceeded if one sample does not fit in the unread bits."""
    count = layout.positive_buckets + layout.negative_buckets
    if count * bits_each > reader.left:
        raise LimitExceeded(SECTION, reader.position >> 3, f"{count} buckets do not fit in {reader.left} bits")
    return count


def _check_stale_order(reader: BitReader, is_stale: bool, was_stale: bool) -> None:
    if was_stale and not is_stale:
        raise BadObject(SECTION, reader.position >> 3, "a histogram follows a staleness marker")


class _Differences:
    """A 64-bit number (wrapping) that is stored as its deltas of deltas."""

    __slots__ = ("_step", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self._step = 0

    def add(self, change_of_step: int) -> int:
        """Apply a delta of deltas; return the new number."""
        self._step += change_of_step
        self.value += self._step
        return self.value


def _integer_samples(reader: BitReader, count: int, layout: HistogramLayout) -> Iterator[HistogramSample]:
    time = _Differences(reader.vint())
    total, zeros = _Differences(reader.vuint()), _Differences(reader.vuint())
    sums = XorReader(reader)
    stored: list[_Differences] = []
    was_stale = sums.value == STALE_NAN
    if not was_stale:
        stored = [_Differences(reader.vint()) for _ in range(_bucket_count(reader, layout, 1))]
    yield _integer_sample(time, total, zeros, sums.value, stored, layout)
    for _ in range(1, count):
        for column in (time, total, zeros):
            column.add(reader.vint())
        is_stale = sums.next() == STALE_NAN
        _check_stale_order(reader, is_stale, was_stale)
        was_stale = is_stale
        if not is_stale:
            for column in stored:
                column.add(reader.vint())
        yield _integer_sample(time, total, zeros, sums.value, [] if is_stale else stored, layout)


def _integer_sample(
    time: _Differences,
    total: _Differences,
    zeros: _Differences,
    sum_bits: int,
    stored: list[_Differences],
    layout: HistogramLayout,
) -> HistogramSample:
    counts = (total.value & UINT64_MASK, zeros.value & UINT64_MASK)
    buckets = tuple(_absolute([column.value for column in stored], layout.positive_buckets))
    return HistogramSample(signed64(time.value), *counts, sum_bits, buckets)


def _absolute(stored: list[int], positive: int) -> Iterator[int]:
    """Yield bucket counts from the differences of adjacent buckets; each side starts at 0."""
    count = 0
    for position, difference in enumerate(stored):
        count = signed64(difference if position == positive else count + difference)
        yield count


def _float_samples(reader: BitReader, count: int, layout: HistogramLayout) -> Iterator[HistogramSample]:
    time = _Differences(reader.vint())
    total, zeros, sums = XorReader(reader), XorReader(reader), XorReader(reader)
    buckets: list[XorReader] = []
    was_stale = sums.value == STALE_NAN
    if not was_stale:
        buckets = [XorReader(reader) for _ in range(_bucket_count(reader, layout, 64))]
    yield _float_sample(time, total, zeros, sums, buckets)
    for _ in range(1, count):
        time.add(reader.vint())
        for column in (total, zeros, sums):
            column.next()
        is_stale = sums.value == STALE_NAN
        _check_stale_order(reader, is_stale, was_stale)
        was_stale = is_stale
        if not is_stale:
            for column in buckets:
                column.next()
        yield _float_sample(time, total, zeros, sums, [] if is_stale else buckets)


def _float_sample(
    time: _Differences, total: XorReader, zeros: XorReader, sums: XorReader, buckets: list[XorReader]
) -> HistogramSample:
    values = tuple(column.value for column in buckets)
    return HistogramSample(signed64(time.value), total.value, zeros.value, sums.value, values)


def encode_histograms(chunk: HistogramChunk) -> bytes:
    """Return the data of a chunk, byte-identical to Prometheus.

    Raises LimitExceeded for none or too many samples, BadObject if buckets do not match the layout.
    """
    if not 0 < len(chunk.samples) <= COUNT_MAX:
        raise LimitExceeded(SECTION, -1, f"{len(chunk.samples)} histograms in a chunk")
    expected = chunk.layout.positive_buckets + chunk.layout.negative_buckets
    if any(len(sample.buckets) != (0 if sample.is_stale else expected) for sample in chunk.samples):
        raise BadObject(SECTION, -1, f"a histogram does not have the {expected} buckets of the layout")
    if any(before.is_stale and not after.is_stale for before, after in pairwise(chunk.samples)):
        raise BadObject(SECTION, -1, "a histogram follows a staleness marker")
    header = len(chunk.samples).to_bytes(COUNT_BYTES, "big") + bytes([chunk.counter_reset << 6])
    writer = BitWriter(header)
    encode_layout(writer, chunk.layout)
    if chunk.is_float:
        _put_float_samples(writer, chunk)
    else:
        _put_integer_samples(writer, chunk)
    return writer.finished()


class _DifferenceWriter:
    """Writes the first number as it is, then its delta, then deltas of deltas."""

    __slots__ = ("_is_signed", "_step", "_value", "_writer")

    def __init__(self, writer: BitWriter, *, is_signed: bool = True) -> None:
        self._writer = writer
        self._is_signed = is_signed
        self._value: int | None = None
        self._step = 0

    def add(self, value: int) -> None:
        """Append a number."""
        if self._value is not None:
            step = value - self._value
            self._writer.vint(signed64(step - self._step))
            self._step = step
        elif self._is_signed:
            self._writer.vint(value)
        else:
            self._writer.vuint(value)
        self._value = value


def _put_integer_samples(writer: BitWriter, chunk: HistogramChunk) -> None:
    time = _DifferenceWriter(writer)
    total, zeros = (_DifferenceWriter(writer, is_signed=False) for _ in range(2))
    sums = XorWriter(writer)
    positive = chunk.layout.positive_buckets
    columns = [_DifferenceWriter(writer) for _ in chunk.samples[0].buckets]
    for sample in chunk.samples:
        time.add(sample.time_ms)
        total.add(sample.observations)
        zeros.add(sample.zero_count)
        sums.add(sample.sum_bits)
        # A staleness marker has no buckets, so there may be more columns than buckets.
        for column, difference in zip(columns, _neighbour_differences(sample.buckets, positive), strict=False):
            column.add(difference)


def _neighbour_differences(buckets: tuple[int, ...], positive: int) -> Iterator[int]:
    """Yield the difference of each bucket from the previous one of its side."""
    for position, count in enumerate(buckets):
        yield signed64(count - (buckets[position - 1] if position not in (0, positive) else 0))


def _put_float_samples(writer: BitWriter, chunk: HistogramChunk) -> None:
    time = _DifferenceWriter(writer)
    fixed = [XorWriter(writer) for _ in range(3)]
    columns = [XorWriter(writer) for _ in chunk.samples[0].buckets]
    for sample in chunk.samples:
        time.add(sample.time_ms)
        for column, bits in zip(fixed, (sample.observations, sample.zero_count, sample.sum_bits), strict=True):
            column.add(bits)
        for column, bits in zip(columns, sample.buckets, strict=False):
            column.add(bits)
