"""The order in which conflicting samples are compared: the greatest stays (docs/decisions/0025).

Values are compared as bits, never calculated with, and the order is total: two samples that are equal in it are the
same.
"""

from __future__ import annotations

from engine.formats.prometheus.chunks.histogram_model import HistogramLayout, HistogramSample
from engine.formats.prometheus.model import STALE_NAN, UINT64_MASK

STALE, NOT_A_NUMBER, NUMBER, HISTOGRAM = range(4)
_SIGN = 1 << 63
_INFINITY = 0x7FF << 52

Rank = tuple[object, ...]


def float_rank(bits: int) -> tuple[int, int]:
    """Return what a float is compared by: numbers by size (-0 before 0), NaNs before them, stale markers first."""
    if bits == STALE_NAN:
        return STALE, 0
    if bits & (_SIGN - 1) > _INFINITY:
        return NOT_A_NUMBER, bits
    return NUMBER, bits ^ UINT64_MASK if bits & _SIGN else bits | _SIGN


def histogram_rank(sample: HistogramSample, layout: HistogramLayout, *, is_float: bool) -> Rank:
    """Return what a histogram is compared by: it comes after any float, its observations count first."""
    bits = (sample.observations, sample.zero_count, *sample.buckets)
    numbers = tuple(map(float_rank, bits)) if is_float else bits
    where = (layout.schema, layout.zero_threshold_bits, layout.positive_spans, layout.negative_spans)
    rest = (is_float, numbers[0], float_rank(sample.sum_bits), numbers[1:], where, layout.custom_bounds_bits)
    return (STALE, 1, rest) if sample.is_stale else (HISTOGRAM, 0, rest)
