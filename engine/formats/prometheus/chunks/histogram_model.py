"""Native histograms as chunks hold them. Floats are bit patterns throughout: carried, never calculated with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from engine.formats.prometheus.model import STALE_NAN

CUSTOM_BUCKETS_SCHEMA = -53


class CounterReset(IntEnum):
    """What is known of the step from the sample before a chunk to its first."""

    UNKNOWN = 0
    NO_RESET = 1
    RESET = 2
    GAUGE = 3


class Span(NamedTuple):
    """A run of neighbouring buckets: ``offset`` from the end of the span before it, the first one's from bucket 0."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class HistogramLayout:
    """Where the buckets of all samples of a chunk lie; ``custom_bounds`` only with the schema of custom buckets."""

    schema: int
    zero_threshold_bits: int
    positive_spans: tuple[Span, ...] = ()
    negative_spans: tuple[Span, ...] = ()
    custom_bounds_bits: tuple[int, ...] = ()

    @property
    def positive_buckets(self) -> int:
        """Return how many positive buckets each sample has."""
        return sum(span.length for span in self.positive_spans)

    @property
    def negative_buckets(self) -> int:
        """Return how many negative buckets each sample has."""
        return sum(span.length for span in self.negative_spans)


class HistogramSample(NamedTuple):
    """One histogram. Counts are numbers in integer chunks and float bits in float chunks; buckets are absolute.

    ``buckets`` are all positive ones, then all negative; a stale marker has none.
    """

    time_ms: int
    observations: int
    zero_count: int
    sum_bits: int
    buckets: tuple[int, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Say whether this marks the end of the series."""
        return self.sum_bits == STALE_NAN


@dataclass(frozen=True, slots=True)
class HistogramChunk:
    """A decoded chunk of histograms that share one layout."""

    is_float: bool
    counter_reset: CounterReset
    layout: HistogramLayout
    samples: tuple[HistogramSample, ...]
