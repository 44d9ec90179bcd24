"""Merge the chunks of one series: chunks that overlap no different one are kept, samples of others are cut again.

The compiled merge delegates overlapping histograms and conflicts under Prometheus' rule to this pure Python module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from engine.core.errors import BadObject, MergeRefused
from engine.formats.prometheus.chunks.chunk_files import chunk_place, file_name
from engine.formats.prometheus.chunks.histogram_model import CounterReset
from engine.formats.prometheus.chunks.histograms import decode_histograms
from engine.formats.prometheus.chunks.xor import decode_xor
from engine.formats.prometheus.errors import Inconsistent, OnlyCopied, OutOfOrder, relocated
from engine.formats.prometheus.model import ENCODING_XOR, HISTOGRAM_ENCODINGS
from engine.lanes.tsdb.merge.chunk_cuts import FloatSample, MergedSample, PlacedHistogram, cut
from engine.lanes.tsdb.merge.merge_heap import MergeHeap
from engine.lanes.tsdb.merge.merge_model import MergeRules, StoredChunk, Winner
from engine.lanes.tsdb.merge.series_budget import SeriesBudget

SAMPLE_VALUES = 8
"""The memory of a sample besides its buckets, in numbers."""
TOO_MUCH = "overlapping samples exceed the memory budget of the merge"


@dataclass(frozen=True, slots=True)
class PlacedChunk:
    """A chunk and its origin: its block, its reference there, and the index of the source."""

    stored: StoredChunk
    block: str = ""
    ref: int = 0
    source: int = -1
    """-1: created by this merge."""

    def is_same(self, other: PlacedChunk) -> bool:
        """Return whether two chunks are equal byte for byte."""
        return self.stored == other.stored


def merge_chunks(
    sources: Sequence[Sequence[PlacedChunk]], rules: MergeRules, budget: SeriesBudget
) -> list[StoredChunk]:
    """Return the merged chunks of a series, given the ascending chunks of each source.

    Of a chain of overlapping chunks, only those with samples of the same time are decoded together. Raises a BadObject
    if a chunk that must be decoded contradicts its description, MergeRefused if it cannot be decoded or exceeds the
    budget.
    """
    heap: MergeHeap[_ChunkQueue] = MergeHeap(lambda one, other: one.times < other.times)
    for chunks in sources:
        if chunks:
            heap.push(_ChunkQueue(chunks))
    merged = []
    encoded = 0
    while heap:
        current = last = _pop_chunk(heap)
        end = current.stored.max_time_ms
        overlapping = []
        while heap and heap.top.current.stored.min_time_ms <= end:
            chunk = _pop_chunk(heap)
            if not chunk.is_same(last):
                overlapping.append(chunk)
                end = max(end, chunk.stored.max_time_ms)
                last = chunk
        if not overlapping:
            merged.append(current.stored)
            continue
        rest = []
        for made in cut(_merged_samples([*overlapping, current], rules.winner, budget), rules.samples_per_chunk):
            encoded += 1 + len(made.chunk.data)
            if encoded > budget.record_bytes:
                raise MergeRefused(f"{_place(current)}: {TOO_MUCH}")
            rest.append(made)
        merged.append(rest.pop(0))
        if rest:
            # They overlap nothing; their heap position decides conflicts of a later group.
            heap.push(_ChunkQueue([PlacedChunk(chunk) for chunk in rest]))
    return merged


class _ChunkQueue:
    """The remaining chunks of a source; never empty in the heap."""

    def __init__(self, chunks: Sequence[PlacedChunk], position: int = 0) -> None:
        self._chunks = chunks
        self._position = position

    @property
    def current(self) -> PlacedChunk:
        return self._chunks[self._position]

    @property
    def times(self) -> tuple[int, int]:
        return self.current.stored[:2]

    def next(self) -> bool:
        self._position += 1
        return self._position < len(self._chunks)


def _pop_chunk(heap: MergeHeap[_ChunkQueue]) -> PlacedChunk:
    chunks = heap.pop()
    chunk = chunks.current
    if chunks.next():
        heap.push(chunks)
    return chunk


def _merged_samples(chunks: Sequence[PlacedChunk], winner: Winner, budget: SeriesBudget) -> Iterator[MergedSample]:
    positions: dict[int, int] = {}
    columns: dict[int, _Samples] = {}
    for chunk in sorted(chunks, key=lambda each: each.stored.min_time_ms):
        columns[id(chunk)] = _Samples(chunk, positions.get(chunk.source, 0))
        positions[chunk.source] = positions.get(chunk.source, 0) + chunk.stored.chunk.sample_count
    if winner is Winner.OURS:
        return _greatest(list(columns.values()), budget)
    return _prometheus_order([columns[id(chunk)] for chunk in chunks], budget)


def _greatest(columns: Sequence[_Samples], budget: SeriesBudget) -> Iterator[MergedSample]:
    """Yield the greatest sample of each time; the columns are ordered by their first times."""
    found: dict[int, MergedSample] = {}
    for samples in columns:
        # This column and later ones have no samples before its first time.
        for time in sorted(time for time in found if time < samples.time):
            yield found.pop(time)
        for sample in samples.open():
            other = found.get(sample.time_ms)
            if other is None or sample.rank > other.rank:
                found[sample.time_ms] = sample
            elif sample.rank == other.rank and isinstance(other, PlacedHistogram):
                assert isinstance(sample, PlacedHistogram)
                found[sample.time_ms] = replace(other, places=other.places | sample.places)
        samples.close()
        _check_budget(sum(map(_values, found.values())), samples.chunk, budget)
    yield from (found[time] for time in sorted(found))


class _Samples:
    """Iterates over the samples of a chunk; ``time`` is that of the current one. Decodes them on first use."""

    def __init__(self, chunk: PlacedChunk, first_place: int) -> None:
        self.chunk = chunk
        self._first_place = first_place
        self._samples: Sequence[MergedSample] | None = None
        self._position = 0

    @property
    def time(self) -> int:
        return self.chunk.stored.min_time_ms if self._samples is None else self.sample.time_ms

    @property
    def sample(self) -> MergedSample:
        return self.open()[self._position]

    @property
    def values(self) -> int:
        return sum(map(_values, self.open()))

    @property
    def is_open(self) -> bool:
        return self._samples is not None

    def open(self) -> Sequence[MergedSample]:
        if self._samples is None:
            self._samples = _decoded(self.chunk, self._first_place)
        return self._samples

    def close(self) -> None:
        """Release the decoded samples."""
        self._samples = None

    def next(self) -> bool:
        self._position += 1
        return self._position < len(self.open())


def _prometheus_order(columns: Sequence[_Samples], budget: SeriesBudget) -> Iterator[MergedSample]:
    """Yield one sample of each time, from the active chunk; an earlier time in another chunk makes that one active."""
    active, *others = columns
    heap: MergeHeap[_Samples] = MergeHeap(lambda one, other: one.time < other.time)
    for samples in others:
        heap.push(samples)
    held = active.values
    last: int | None = None
    has_started = False
    while True:
        if not has_started or active.next():
            has_started = True
            if active.time == last:
                continue
            if heap and active.time >= heap.top.time:
                heap.push(active)
                active = heap.pop()
        elif heap:
            held -= active.values
            active.close()
            active = heap.pop()
        else:
            return
        if not active.is_open:
            held += active.values
            _check_budget(held, active.chunk, budget)
        if active.time != last:
            last = active.time
            yield active.sample


def _values(sample: MergedSample) -> int:
    """Return the memory of a sample, in numbers."""
    return SAMPLE_VALUES + (len(sample.sample.buckets) if isinstance(sample, PlacedHistogram) else 0)


def _check_budget(values: int, chunk: PlacedChunk, budget: SeriesBudget) -> None:
    if values > budget.values:
        raise MergeRefused(f"{_place(chunk)}: {TOO_MUCH}")


def _place(chunk: PlacedChunk) -> str:
    number, offset = chunk_place(chunk.ref)
    return f"{chunk.block}: {file_name(number)} at offset {offset}"


def _decoded(chunk: PlacedChunk, first_place: int) -> list[MergedSample]:
    """Return a chunk's samples; ``first_place`` is the index of the first among those of its source."""
    stored = chunk.stored
    number, offset = chunk_place(chunk.ref)
    try:
        samples = _samples_of(chunk, first_place)
        times = [sample.time_ms for sample in samples]
        if any(after <= before for before, after in pairwise(times)):
            raise OutOfOrder("", 0, "the samples of a chunk do not ascend in time")
        if (times[0], times[-1]) != stored[:2]:
            reason = f"samples from {times[0]} to {times[-1]}, but the index states {stored[0]} to {stored[1]}"
            raise Inconsistent("", 0, reason)
    except BadObject as error:
        raise relocated(error, file_name(number), offset).in_object(chunk.block) from error
    return samples


def _samples_of(chunk: PlacedChunk, first_place: int) -> list[MergedSample]:
    encoding, data = chunk.stored.chunk
    if encoding == ENCODING_XOR:
        times, bits = decode_xor(data)
        return [FloatSample(*each) for each in zip(times.tolist(), bits.tolist(), strict=True)]
    if encoding not in HISTOGRAM_ENCODINGS:
        raise OnlyCopied("", 0, f"a chunk of encoding {encoding} overlaps another one and can only be copied")
    found = decode_histograms(encoding, data)
    is_gauge = found.counter_reset is CounterReset.GAUGE
    inside = CounterReset.GAUGE if is_gauge else CounterReset.NO_RESET
    return [
        PlacedHistogram(
            sample=sample,
            layout=found.layout,
            is_float=found.is_float,
            step=inside if position else found.counter_reset,
            places=frozenset({(chunk.source, first_place + position)}),
        )
        for position, sample in enumerate(found.samples)
    ]
