"""How fast float chunks of Prometheus blocks are decoded and encoded, as the merge will meet them: 120 samples each.

A third are integer counters with small steps, a third counters with two decimals, a third gauges of four levels, every
15 s from a phase of its own; the same seed gives the same chunks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from engine.tsdb import _xor_py, xor
from tests.bench.figures import Figures

NAME = "tsdb_decode"
SEED = 20230315
SAMPLES = 120
STEP_MS = 15_000
START_MS = 1_678_838_400_000
CHUNKS, CHUNKS_FULL = 3_000, 30_000
TWIN_CHUNKS = 30
REPEATS = 7


def run(full: bool = False) -> Figures:
    """Measure; rates are of CPU time of one core, medians of the repeats."""
    chunks = CHUNKS_FULL if full else CHUNKS
    columns = [column(np.random.default_rng([SEED, number]), number % 3) for number in range(chunks)]
    encoded = [xor.encode_xor(*samples) for samples in columns]
    decode = rate(lambda: [xor.decode_xor(data) for data in encoded], chunks)
    encode = rate(lambda: [xor.encode_xor(*samples) for samples in columns], chunks)
    twin_decode = rate(lambda: [_xor_py.decode_xor(data) for data in encoded[:TWIN_CHUNKS]], TWIN_CHUNKS)
    twin_encode = rate(lambda: [_xor_py.encode_xor(*samples) for samples in columns[:TWIN_CHUNKS]], TWIN_CHUNKS)
    return Figures(
        parameters={
            "implementation": xor.IMPLEMENTATION,
            "chunks": chunks,
            "samples": SAMPLES,
            "bytes_per_sample": round(sum(map(len, encoded)) / chunks / SAMPLES, 3),
        },
        figures={
            "decode_samples_per_s_core": decode,
            "encode_samples_per_s_core": encode,
            "decode_speedup_over_twin": decode / twin_decode,
            "encode_speedup_over_twin": encode / twin_encode,
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


def rate(work: Callable[[], object], chunks: int) -> float:
    """Return samples per second of CPU time, median of the repeats."""
    work()
    return statistics.median(chunks * SAMPLES / max(cpu_seconds(work), 1e-9) for _ in range(REPEATS))


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of doing the work once."""
    started = time.process_time()
    work()
    return time.process_time() - started
