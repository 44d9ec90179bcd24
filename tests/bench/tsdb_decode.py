"""Speed of reading and writing parts of Prometheus blocks: float chunks of 120 samples, and series of the index.

Series have nine labels and four chunks. A third of the chunks are integer counters with small steps, a third counters
with two decimals, a third gauges of four levels, every 15 s with their own phase; equal for equal seeds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from engine.core.kernels import implementation_of
from engine.formats.prometheus.chunks import _xor_py, xor
from engine.formats.prometheus.index import _series_entries_py, series_entries
from engine.formats.prometheus.index.index_reader import BATCH_SERIES
from engine.formats.prometheus.index.series_batch import SeriesBatch, series_batch
from engine.formats.prometheus.model import ChunkMeta
from tests.bench.figures import Figures

NAME = "tsdb_decode"
SEED = 20230315
SAMPLES = 120
STEP_MS = 15_000
START_MS = 1_678_838_400_000
CHUNKS, CHUNKS_FULL = 3_000, 30_000
TWIN_CHUNKS = 30
SERIES, SERIES_TWIN = 20_000, BATCH_SERIES
LABELS, SERIES_CHUNKS = 9, 4
REPEATS = 7


def run(full: bool = False) -> Figures:
    """Run the benchmark; rates are per CPU time of one core, medians of the repeats."""
    chunks = CHUNKS_FULL if full else CHUNKS
    columns = [column(np.random.default_rng([SEED, number]), number % 3) for number in range(chunks)]
    encoded = [xor.encode_xor(*samples) for samples in columns]
    samples, twin_samples = chunks * SAMPLES, TWIN_CHUNKS * SAMPLES
    decode = rate(lambda: [xor.decode_xor(data) for data in encoded], samples)
    encode = rate(lambda: [xor.encode_xor(*each) for each in columns], samples)
    twin_decode = rate(lambda: [_xor_py.decode_xor(data) for data in encoded[:TWIN_CHUNKS]], twin_samples)
    twin_encode = rate(lambda: [_xor_py.encode_xor(*each) for each in columns[:TWIN_CHUNKS]], twin_samples)
    index = [series(first) for first in range(0, SERIES, BATCH_SERIES)]
    entries = [series_entries.encode_series(batch, 0, None)[0] for batch in index]
    count = sum(len(batch.ids) for batch in index)
    read = rate(lambda: [read_series(series_entries.decode_series, data) for data in entries], count)
    written = rate(lambda: [series_entries.encode_series(batch, 0, None) for batch in index], count)
    twin_read = rate(lambda: read_series(_series_entries_py.decode_series, entries[0]), SERIES_TWIN)
    twin_written = rate(lambda: _series_entries_py.encode_series(index[0], 0, None), SERIES_TWIN)
    return Figures(
        parameters={
            "implementation": implementation_of("engine.formats.prometheus.chunks._xor"),
            "chunks": chunks,
            "series": count,
            "samples": SAMPLES,
            "bytes_per_sample": round(sum(map(len, encoded)) / chunks / SAMPLES, 3),
        },
        figures={
            "decode_samples_per_s_core": decode,
            "encode_samples_per_s_core": encode,
            "decode_speedup_over_twin": decode / twin_decode,
            "encode_speedup_over_twin": encode / twin_encode,
            "series_read_per_s_core": read,
            "series_written_per_s_core": written,
            "series_read_speedup_over_twin": read / twin_read,
            "series_written_speedup_over_twin": written / twin_written,
        },
    )


def column(draw: np.random.Generator, kind: int) -> tuple[xor.Times, xor.ValueBits]:
    """Return the times and value bits of one chunk."""
    times = START_MS + int(draw.integers(STEP_MS)) + STEP_MS * np.arange(SAMPLES, dtype=np.int64)
    if kind == 0:
        values = 1e4 + np.cumsum(draw.integers(0, 20, SAMPLES)).astype(np.float64)
    elif kind == 1:
        values = np.round(np.cumsum(draw.random(SAMPLES)), 2)
    else:
        values = draw.choice([0.0, 0.25, 0.5, 1.0], SAMPLES)
    return times, values.view(np.uint64)


def series(first: int) -> SeriesBatch:
    """Return a batch of series, numbered from ``first``."""
    rows = []
    for number in range(first, first + BATCH_SERIES):
        refs = [ref for label in range(LABELS - 1) for ref in (label, 100 + label * 300 + number % 300)]
        place = number * SERIES_CHUNKS * 400
        chunks = [
            ChunkMeta(START_MS + each * 1_800_000, START_MS + each * 1_800_000 + 1_785_000, place + each * 370)
            for each in range(SERIES_CHUNKS)
        ]
        rows.append(([0, 50_000 + number, *refs[2:], LABELS, 9_000 + number % 200], chunks))
    return series_batch(rows)


def read_series(decode: Callable[..., SeriesBatch], data: bytes) -> SeriesBatch:
    """Read the series of one batch."""
    return decode(memoryview(data), 0, len(data), 1 << 20, 0, None, BATCH_SERIES)


def rate(work: Callable[[], object], count: int) -> float:
    """Return ``count`` items per second of CPU time, median of the repeats."""
    work()
    return statistics.median(count / max(cpu_seconds(work), 1e-9) for _ in range(REPEATS))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call of ``work``."""
    started = time.process_time()
    work()
    return time.process_time() - started
