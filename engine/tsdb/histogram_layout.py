"""What stands once at the front of a chunk of native histograms: schema, zero threshold, spans, custom bounds."""

from __future__ import annotations

import struct

from engine.profiles.errors import UnknownFormat
from engine.tsdb.bit_stream import SECTION, BitReader
from engine.tsdb.histogram_model import CUSTOM_BUCKETS_SCHEMA, HistogramLayout, Span

THRESHOLD_RAW = 255
THRESHOLD_EXPONENT_BIAS = 244
BOUND_UNIT = 1000
BOUND_CODE_MAX = 33_554_431
"""Bounds up to 33,554.43 in thousandths have a short form."""


def float_bits(value: float) -> int:
    """Return the bits of a float."""
    return int.from_bytes(struct.pack(">d", value), "big")


def decode_layout(reader: BitReader) -> HistogramLayout:
    """Read a layout; the sizes in it are promises that nothing has been reserved for."""
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
    # Every span takes at least two bits, so that a count which lies runs into the end.
    spans = []
    for _ in range(reader.vuint()):
        length = reader.vuint()
        spans.append(Span(reader.vint(), length))
    return tuple(spans)


def _bounds(reader: BitReader) -> tuple[int, ...]:
    bounds = []
    for _ in range(reader.vuint()):
        at = reader.position >> 3
        code = reader.vuint()
        if code > BOUND_CODE_MAX:
            raise UnknownFormat(SECTION, at, f"a custom bound with code {code}")
        bounds.append(float_bits((code - 1) / BOUND_UNIT) if code else reader.bits(64))
    return tuple(bounds)
