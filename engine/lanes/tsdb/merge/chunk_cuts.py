"""Rank conflicting samples, and cut merged samples into chunks.

The greatest of conflicting samples is kept (decision 0025). Values are compared as bits, never computed with, and the
order is total: samples of equal rank are identical.

Floats are cut in runs of a fixed length, histograms also where their kind changes. The samples of a histogram chunk
share one layout, without counter resets between them. The known counter reset between two samples is kept if they were
consecutive in a source; otherwise it is unknown, which is always valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np

from engine.formats.prometheus.chunks.histogram_model import (
    CounterReset,
    HistogramChunk,
    HistogramLayout,
    HistogramSample,
)
from engine.formats.prometheus.chunks.histograms import encode_histograms
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.model import (
    ENCODING_FLOAT_HISTOGRAM,
    ENCODING_HISTOGRAM,
    ENCODING_XOR,
    STALE_NAN,
    UINT64_MASK,
    Chunk,
)
from engine.lanes.tsdb.merge.merge_model import StoredChunk

STALE, NOT_A_NUMBER, NUMBER, HISTOGRAM = range(4)
_SIGN = 1 << 63
_INFINITY = 0x7FF << 52

Rank = tuple[object, ...]


def float_rank(bits: int) -> tuple[int, int]:
    """Return the rank of a float: numbers by value (-0 before 0), before them NaNs, before these stale markers."""
    if bits == STALE_NAN:
        return STALE, 0
    if bits & (_SIGN - 1) > _INFINITY:
        return NOT_A_NUMBER, bits
    return NUMBER, bits ^ UINT64_MASK if bits & _SIGN else bits | _SIGN


def histogram_rank(sample: HistogramSample, layout: HistogramLayout, *, is_float: bool) -> Rank:
    """Return the rank of a histogram: after all floats, first by its number of observations."""
    bits = (sample.observations, sample.zero_count, *sample.buckets)
    numbers = tuple(map(float_rank, bits)) if is_float else bits
    where = (layout.schema, layout.zero_threshold_bits, layout.positive_spans, layout.negative_spans)
    rest = (is_float, numbers[0], float_rank(sample.sum_bits), numbers[1:], where, layout.custom_bounds_bits)
    return (STALE, 1, rest) if sample.is_stale else (HISTOGRAM, 0, rest)


@dataclass(frozen=True, slots=True)
class FloatSample:
    """A float sample of a series."""

    time_ms: int
    bits: int

    @property
    def rank(self) -> Rank:
        """Return the key that orders samples of the same time."""
        return float_rank(self.bits)


@dataclass(frozen=True, slots=True)
class PlacedHistogram:
    """A histogram with its chunk's layout and its positions: source, and index among that source's samples.

    ``step`` is the counter reset that its chunk records before it: the header for the first sample, otherwise none.
    """

    sample: HistogramSample
    layout: HistogramLayout
    is_float: bool
    step: CounterReset
    places: frozenset[tuple[int, int]]

    @property
    def time_ms(self) -> int:
        """Return the sample's time."""
        return self.sample.time_ms

    @property
    def rank(self) -> Rank:
        """Return the key that orders samples of the same time."""
        return histogram_rank(self.sample, self.layout, is_float=self.is_float)

    @property
    def is_gauge(self) -> bool:
        """Return whether it is a gauge histogram."""
        return self.step is CounterReset.GAUGE

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Return the values that never decrease in a counter, in comparable form."""
        numbers = (self.sample.observations, self.sample.zero_count, *self.sample.buckets)
        return [float_rank(number) if self.is_float else (0, number) for number in numbers]

    def follows(self, before: PlacedHistogram) -> bool:
        """Return whether the two samples are consecutive in a source."""
        return any((source, place - 1) in before.places for source, place in self.places)


MergedSample = FloatSample | PlacedHistogram


def cut(samples: Iterable[MergedSample], most: int) -> Iterator[StoredChunk]:
    """Yield chunks of up to ``most`` samples."""
    for kind, run in groupby(samples, type):
        if kind is FloatSample:
            floats = (sample for sample in run if isinstance(sample, FloatSample))
            while part := list(islice(floats, most)):
                yield _float_chunk(part)
        else:
            histograms = (sample for sample in run if isinstance(sample, PlacedHistogram))
            yield from (_histogram_chunk(*part) for part in _parts(histograms, most))


def _float_chunk(samples: Sequence[FloatSample]) -> StoredChunk:
    times = np.array([sample.time_ms for sample in samples], np.int64)
    data = encode_xor(times, np.array([sample.bits for sample in samples], np.uint64))
    return StoredChunk(samples[0].time_ms, samples[-1].time_ms, Chunk(ENCODING_XOR, data))


def _histogram_chunk(step: CounterReset, samples: Sequence[PlacedHistogram]) -> StoredChunk:
    first = samples[0]
    data = encode_histograms(HistogramChunk(first.is_float, step, first.layout, tuple(each.sample for each in samples)))
    encoding = ENCODING_FLOAT_HISTOGRAM if first.is_float else ENCODING_HISTOGRAM
    return StoredChunk(first.time_ms, samples[-1].time_ms, Chunk(encoding, data))


def _parts(samples: Iterable[PlacedHistogram], most: int) -> Iterator[tuple[CounterReset, list[PlacedHistogram]]]:
    """Yield the samples of each histogram chunk with the counter reset before it."""
    part: list[PlacedHistogram] = []
    reset = CounterReset.UNKNOWN
    for sample in samples:
        if not part or len(part) == most or not _continues(part, sample):
            if part:
                yield reset, part
            is_known = sample.is_gauge or (part and sample.follows(part[-1]))
            reset = sample.step if is_known else CounterReset.UNKNOWN
            part = []
        part.append(sample)
    if part:
        yield reset, part


def _continues(part: Sequence[PlacedHistogram], sample: PlacedHistogram) -> bool:
    """Return whether a sample may be appended to a chunk."""
    before = part[-1]
    if (sample.is_float, sample.is_gauge) != (before.is_float, before.is_gauge):
        return False
    if sample.sample.is_stale:
        return True
    if before.sample.is_stale or sample.layout != part[0].layout:
        return False
    if sample.is_gauge:
        return True
    is_reset = sample.step is CounterReset.RESET and sample.follows(before)
    return not is_reset and all(new >= old for old, new in zip(before.counts, sample.counts, strict=True))
