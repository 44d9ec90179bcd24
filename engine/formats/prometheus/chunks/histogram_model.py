"""Types of native histograms in chunks. Floats are bit patterns: they are copied, never calculated with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from engine.formats.prometheus.model import STALE_NAN

CUSTOM_BUCKETS_SCHEMA = -53


class CounterReset(IntEnum):
    """Whether the counter was reset between the sample before a chunk and its first sample."""

    UNKNOWN = 0
    NO_RESET = 1
    RESET = 2
    GAUGE = 3


class Span(NamedTuple):
    """A run of adjacent buckets; ``offset`` counts from the end of the previous span, or from bucket 0."""

    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class HistogramLayout:
    """The buckets of all samples of a chunk; only the schema of custom buckets has ``custom_bounds_bits``."""

    schema: int
    zero_threshold_bits: int
    positive_spans: tuple[Span, ...] = ()
    negative_spans: tuple[Span, ...] = ()
    custom_bounds_bits: tuple[int, ...] = ()

    @property
    def positive_buckets(self) -> int:
        """Return the number of positive buckets of each sample."""
        return sum(span.length for span in self.positive_spans)

    @property
    def negative_buckets(self) -> int:
        """Return the number of negative buckets of each sample."""
        return sum(span.length for span in self.negative_spans)


class HistogramSample(NamedTuple):
    """One histogram. Counts are integers in integer chunks, bit patterns in float chunks; buckets are absolute.

    ``buckets`` are the positive, then the negative ones; a staleness marker has none.
    """

    time_ms: int
    observations: int
    zero_count: int
    sum_bits: int
    buckets: tuple[int, ...] = ()

    @property
    def is_stale(self) -> bool:
        """Return whether this is a staleness marker."""
        return self.sum_bits == STALE_NAN


@dataclass(frozen=True, slots=True)
class HistogramChunk:
    """A decoded histogram chunk, whose samples share one layout."""

    is_float: bool
    counter_reset: CounterReset
    layout: HistogramLayout
    samples: tuple[HistogramSample, ...]
