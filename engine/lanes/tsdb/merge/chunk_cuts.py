"""Cuts samples that were merged into chunks: floats in runs of a length, histograms also where their kind changes.

The samples of a chunk of histograms share one layout and no counter is reset between them. What is known of the step
between two samples that stood one behind the other in a source is kept; of others it is unknown, which is always right.
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
from engine.formats.prometheus.model import ENCODING_FLOAT_HISTOGRAM, ENCODING_HISTOGRAM, ENCODING_XOR, Chunk
from engine.lanes.tsdb.merge.merge_model import StoredChunk
from engine.lanes.tsdb.merge.sample_order import Rank, float_rank, histogram_rank


@dataclass(frozen=True, slots=True)
class FloatSample:
    """A number of a series at a time."""

    time_ms: int
    bits: int

    @property
    def rank(self) -> Rank:
        """Return what decides between samples of one time."""
        return float_rank(self.bits)


@dataclass(frozen=True, slots=True)
class PlacedHistogram:
    """A histogram with its chunk's layout and where it stood: in which source, and as which of that source's samples.

    ``step`` is what its chunk says of the step to it: the header for the first of a chunk, inside there is no reset.
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
        """Return what decides between samples of one time."""
        return histogram_rank(self.sample, self.layout, is_float=self.is_float)

    @property
    def is_gauge(self) -> bool:
        """Say whether it may go down as well as up."""
        return self.step is CounterReset.GAUGE

    @property
    def counts(self) -> list[tuple[int, int]]:
        """Return what only grows in a counter, comparable."""
        numbers = (self.sample.observations, self.sample.zero_count, *self.sample.buckets)
        return [float_rank(number) if self.is_float else (0, number) for number in numbers]

    def follows(self, before: PlacedHistogram) -> bool:
        """Say whether the two stood one behind the other in a source."""
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
    """Yield the samples of each chunk with what is known of the step to it."""
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
    """Say whether a sample may stand behind those of a chunk."""
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
