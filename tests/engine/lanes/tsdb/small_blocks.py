"""Small blocks out of plain samples, what is in a block as plain samples, and a merge that is simple."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from engine.core import ulids
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.histogram_model import (
    CounterReset,
    HistogramChunk,
    HistogramLayout,
    HistogramSample,
    Span,
)
from engine.formats.prometheus.chunks.histograms import encode_histograms
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.index.series_batch import series_batch
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
from engine.formats.prometheus.model import (
    ENCODING_FLOAT_HISTOGRAM,
    ENCODING_HISTOGRAM,
    ENCODING_XOR,
    STALE_NAN,
    Chunk,
    ChunkMeta,
    Labels,
)
from engine.lanes.tsdb.merge import merge
from engine.lanes.tsdb.merge.chunk_cuts import float_rank, histogram_rank
from engine.lanes.tsdb.merge.merge import MergeOutcome, MergeRules, merge_blocks

BUDGET_BYTES = 16 << 20
MIN_TIME, MAX_TIME = 0, 10_000
LAYOUT = HistogramLayout(3, 0, (Span(0, 2),))
WIDER_LAYOUT = HistogramLayout(3, 0, (Span(0, 3),))

Value = int | tuple[HistogramSample, HistogramLayout, bool]
"""The bits of a float, or a histogram (its time set to 0) with its layout and whether its counts are floats."""
FloatChunk = list[tuple[int, int]]
SeriesChunks = list[FloatChunk | HistogramChunk]
Content = dict[Labels, dict[int, Value]]


@dataclass
class SmallBlock:
    """What a block is made of: chunks, and deleted intervals, by labels."""

    chunks: dict[Labels, SeriesChunks]
    deleted: dict[Labels, list[tuple[int, int]]] = field(default_factory=dict)


def ulid(number: int) -> str:
    return ulids.make(1_700_000_000_000, number.to_bytes(ulids.ENTROPY_BYTES, "big"))


def encoded(chunk: FloatChunk | HistogramChunk) -> tuple[tuple[int, int], Chunk]:
    """Return first and last time, and the chunk."""
    if isinstance(chunk, HistogramChunk):
        encoding = ENCODING_FLOAT_HISTOGRAM if chunk.is_float else ENCODING_HISTOGRAM
        times = (chunk.samples[0].time_ms, chunk.samples[-1].time_ms)
        return times, Chunk(encoding, encode_histograms(chunk))
    data = encode_xor(np.array([time for time, _ in chunk], np.int64), np.array([bits for _, bits in chunk], np.uint64))
    return (chunk[0][0], chunk[-1][0]), Chunk(ENCODING_XOR, data)


def write(parent: Path, number: int, block: SmallBlock, **meta: object) -> Path:
    """Write a block; ``meta`` replaces fields of its compaction."""
    symbols = sorted({b"", *(text for labels in block.chunks for pair in labels for text in pair)})
    numbers = {symbol: place for place, symbol in enumerate(symbols)}
    compaction = Compaction(**({"level": 1, "sources": (ulid(number),)} | meta))  # type: ignore[arg-type]
    ids: dict[Labels, int] = {}
    with BlockWriter(parent, ulid(number), symbols) as writer:
        for labels in sorted(block.chunks, key=lambda labels: [text for pair in labels for text in pair]):
            pieces = [encoded(chunk) for chunk in block.chunks[labels]]
            refs = writer.write_chunks([chunk for _, chunk in pieces])
            metas = [ChunkMeta(*times, ref) for (times, _), ref in zip(pieces, refs, strict=True)]
            added = writer.add_series(series_batch([([numbers[text] for pair in labels for text in pair], metas)]))
            ids[labels] = int(added[0])
        deleted = [(ids[labels], *each) for labels, intervals in block.deleted.items() for each in intervals]
        writer.finish(BlockMeta(ulid(number), MIN_TIME, MAX_TIME, BlockStats(), compaction), deleted)
    return parent / ulid(number)


def content(folder: Path) -> Content:
    """Return every sample of a block."""
    block = BlockReader(folder)
    found: Content = {}
    for series in block.index.series():
        samples: dict[int, Value] = {}
        for meta in series.chunks:
            chunk = block.chunk(meta)
            assert chunk.sample_count <= 120
            pairs = list(_values(block, meta, chunk))
            assert [time for time, _ in pairs] == sorted({time for time, _ in pairs} - samples.keys())
            samples.update(pairs)
        found[series.labels] = samples
    return found


def _values(block: BlockReader, meta: ChunkMeta, chunk: Chunk) -> Iterator[tuple[int, Value]]:
    if chunk.encoding == ENCODING_XOR:
        times, bits = block.floats(meta, chunk)
        yield from zip(times.tolist(), bits.tolist(), strict=True)
        return
    histograms = block.histograms(meta, chunk)
    for sample in histograms.samples:
        # The layout of a marker that has no buckets is that of its neighbours.
        layout = HistogramLayout(0, 0) if sample.is_stale else histograms.layout
        yield sample.time_ms, (sample._replace(time_ms=0), layout, histograms.is_float)


def rank(value: Value) -> tuple[object, ...]:
    if isinstance(value, int):
        return float_rank(value)
    sample, layout, is_float = value
    return histogram_rank(sample, layout, is_float=is_float)


def naive_merge(contents: Iterable[Content]) -> Content:
    """Return the greatest sample of each series and time."""
    merged: Content = {}
    for each in contents:
        for labels, samples in each.items():
            into = merged.setdefault(labels, {})
            for time, value in samples.items():
                into[time] = max(into[time], value, key=rank) if time in into else value
    return merged


def without_deleted(content: Content, deleted: Mapping[Labels, Sequence[tuple[int, int]]]) -> Content:
    """Return what is left of a block's samples, without series that have none."""
    left = {
        labels: {
            time: value
            for time, value in samples.items()
            if not any(start <= time <= end for start, end in deleted.get(labels, ()))
        }
        for labels, samples in content.items()
    }
    return {labels: samples for labels, samples in left.items() if samples}


@contextmanager
def implemented_by(name: str) -> Iterator[None]:
    """Merge with the twin (``_series_merge_py``) or the compiled merge of series (``_series_merge``)."""
    implementation = importlib.import_module(f"engine.lanes.tsdb.merge.{name}")
    with mock.patch.object(merge, "SeriesMerge", implementation.SeriesMerge):
        yield


def merged(folders: Sequence[Path], parent: Path, number: int, **options: object) -> MergeOutcome:
    """Merge under our rules by default."""
    given = {"rules": MergeRules(), "budget_bytes": BUDGET_BYTES} | options
    return merge_blocks(folders, parent, ulid(number), **given)  # type: ignore[arg-type]


def file_bytes(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


LABELS: list[Labels] = [
    tuple((f"{name}".encode(), value.encode()) for name, value in pairs)
    for pairs in ([], [("a", "x")], [("a", "x"), ("b", "x")], [("a", "y")], [("b", "\u00fc")], [("b", "x"), ("c", "z")])
]
VALUE_BITS = st.one_of(
    st.sampled_from([0, 1 << 63, STALE_NAN, 0x7FF8000000000001, 0xFFF8000000000001, 0x3FF0000000000000, 1]),
    st.integers(0, (1 << 64) - 1),
)
COUNTS = st.integers(0, 5)


@st.composite
def histogram_chunks(draw: st.DrawFn, times: Sequence[int]) -> HistogramChunk:
    layout = draw(st.sampled_from([LAYOUT, WIDER_LAYOUT]))
    is_float = draw(st.booleans())
    samples = []
    is_stale = False
    for time in times:
        is_stale = is_stale or draw(st.integers(0, 9)) == 0
        buckets = () if is_stale else tuple(draw(COUNTS) for _ in range(layout.positive_buckets))
        samples.append(HistogramSample(time, sum(buckets), 0, STALE_NAN if is_stale else draw(COUNTS), buckets))
    return HistogramChunk(is_float, draw(st.sampled_from(CounterReset)), layout, tuple(samples))


@st.composite
def series_chunks(draw: st.DrawFn, histograms: bool) -> SeriesChunks:
    """Chunks that follow one another; few times, so that those of several blocks meet."""
    times = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=20)))
    chunks: SeriesChunks = []
    while times:
        size = draw(st.integers(1, len(times)))
        part, times = times[:size], times[size:]
        if histograms and draw(st.booleans()):
            chunks.append(draw(histogram_chunks(part)))
        else:
            chunks.append([(time, draw(VALUE_BITS)) for time in part])
    return chunks


@st.composite
def small_blocks(draw: st.DrawFn, histograms: bool = True) -> SmallBlock:
    chosen = draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=4, unique=True))
    intervals = st.tuples(st.integers(0, 40), st.integers(0, 15)).map(lambda each: (each[0], each[0] + each[1]))
    return SmallBlock(
        {labels: draw(series_chunks(histograms)) for labels in chosen},
        {labels: draw(st.lists(intervals, max_size=2)) for labels in chosen},
    )
