"""Encoding of the layout at the front of a histogram chunk: schema, zero threshold, spans, custom bounds."""

from __future__ import annotations

import struct

from engine.core.errors import LimitExceeded, UnknownFormat
from engine.formats.prometheus.chunks.bit_stream import SECTION, BitReader, BitWriter
from engine.formats.prometheus.chunks.histogram_model import CUSTOM_BUCKETS_SCHEMA, HistogramLayout, Span

THRESHOLD_RAW = 255
THRESHOLD_EXPONENT_BIAS = 244
BOUND_UNIT = 1000
BOUND_CODE_MAX = 33_554_431
"""Multiples of 0.001 up to 33,554.43 have a short form."""
ENTRIES_MAX = 1 << 16
"""Maximum number of spans per side and of custom bounds; real histograms have fewer."""
SPAN_BITS_MIN = 2
BOUND_BITS_MIN = 5
"""Sizes of the shortest span and bound."""


def float_bits(value: float) -> int:
    """Return the bit pattern of a float."""
    return int.from_bytes(struct.pack(">d", value), "big")


def float_of(bits: int) -> float:
    """Return the float of a bit pattern; for comparisons only, never for samples."""
    (value,) = struct.unpack(">d", bits.to_bytes(8, "big"))
    return float(value)


def decode_layout(reader: BitReader) -> HistogramLayout:
    """Return a decoded layout; its bucket counts are not validated against the size of the chunk.

    Raises LimitExceeded for more spans or bounds than ENTRIES_MAX or than the data can hold.
    """
    threshold = _threshold(reader)
    schema = reader.vint()
    positive, negative = _spans(reader), _spans(reader)
    bounds = _bounds(reader) if schema == CUSTOM_BUCKETS_SCHEMA else ()
    return HistogramLayout(schema, threshold, positive, negative, bounds)


def _threshold(reader: BitReader) -> int:
    code = reader.bits(8)
    if code == 0:
        return 0
    if code == THRESHOLD_RAW:
        return reader.bits(64)
    return float_bits(2.0 ** (code - THRESHOLD_EXPONENT_BIAS))


def _spans(reader: BitReader) -> tuple[Span, ...]:
    spans = []
    for _ in range(_count(reader, SPAN_BITS_MIN, "spans")):
        length = reader.vuint()
        spans.append(Span(reader.vint(), length))
    return tuple(spans)


def _count(reader: BitReader, bits_each: int, what: str) -> int:
    """Return the number of following items; raise LimitExceeded if they cannot fit in the unread bits."""
    at, count = reader.position >> 3, reader.vuint()
    if count > ENTRIES_MAX or count * bits_each > reader.left:
        raise LimitExceeded(SECTION, at, f"{count} {what} exceed {ENTRIES_MAX} or the {reader.left} unread bits")
    return count


def _bounds(reader: BitReader) -> tuple[int, ...]:
    bounds = []
    for _ in range(_count(reader, BOUND_BITS_MIN, "custom bounds")):
        at = reader.position >> 3
        code = reader.vuint()
        if code > BOUND_CODE_MAX:
            raise UnknownFormat(SECTION, at, f"unknown code {code} of a custom bound")
        bounds.append(float_bits((code - 1) / BOUND_UNIT) if code else reader.bits(64))
    return tuple(bounds)


def encode_layout(writer: BitWriter, layout: HistogramLayout) -> None:
    """Append a layout, with every number in its shortest form."""
    _put_threshold(writer, layout.zero_threshold_bits)
    writer.vint(layout.schema)
    for spans in (layout.positive_spans, layout.negative_spans):
        writer.vuint(len(spans))
        for span in spans:
            writer.vuint(span.length)
            writer.vint(span.offset)
    if layout.schema == CUSTOM_BUCKETS_SCHEMA:
        writer.vuint(len(layout.custom_bounds_bits))
        for bound in layout.custom_bounds_bits:
            _put_bound(writer, bound)


def _put_threshold(writer: BitWriter, bits: int) -> None:
    code = (bits >> 52) - 1023 + THRESHOLD_EXPONENT_BIAS
    if bits == 0:
        writer.bits(0, 8)
    elif bits & ((1 << 52) - 1) == 0 and 0 < code < THRESHOLD_RAW:
        writer.bits(code, 8)
    else:
        writer.bits(THRESHOLD_RAW, 8)
        writer.bits(bits, 64)


def _put_bound(writer: BitWriter, bits: int) -> None:
    code = _bound_code(float_of(bits))
    if code and float_bits((code - 1) / BOUND_UNIT) == bits:
        writer.vuint(code)
    else:
        writer.vuint(0)
        writer.bits(bits, 64)


def _bound_code(bound: float) -> int:
    """Return the code of the nearest multiple of 0.001, 0 if it is out of range."""
    if not 0 <= bound <= BOUND_CODE_MAX / BOUND_UNIT:
        return 0
    code = round(bound * BOUND_UNIT) + 1
    return code if code <= BOUND_CODE_MAX else 0
