"""Prometheus blocks with the size of those of a busy server, generated quickly; equal for equal seeds.

Every series has nine labels, a constant step with its own phase, and the values of one of 1,500 series: a third integer
counters with small steps, a third counters with two decimals, a third gauges of four levels. Only the first time of a
chunk depends on the phase, so that one encoding serves many series.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine.core import ulids
from engine.core.binary import encode_svarint
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.index.series_batch import series_batch
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction, decode_meta, encode_meta
from engine.formats.prometheus.model import ENCODING_XOR, Chunk, ChunkMeta

SEED = 20230315
POOL = 1_500
GAP_PATTERNS = 4
"""Patterns of random gaps for each series of the pool and replica."""
STEP_MS = 15_000
SAMPLES = 480
CHUNK_SAMPLES = 120
INTERVAL_MS = SAMPLES * STEP_MS
START_MS = 1_678_838_400_000
BATCH_SERIES = 512
METRICS, PODS, NODES, JOBS, NAMESPACES, CONTAINERS, ZONES = 200, 5_000, 200, 10, 50, 20, 3
METRICS_PER_POD = 20


class Encoded(NamedTuple):
    """A chunk without its first time: first and last times relative to the phase, and the bytes around it."""

    start_ms: int
    end_ms: int
    head: bytes
    tail: bytes


def block_ulid(number: int) -> str:
    """Return the ULID of a source."""
    return ulids.make(START_MS, number.to_bytes(ulids.ENTROPY_BYTES, "big"))


def write_block(parent: Path, number: int, series: int, *, interval: int = 0, gaps: float = 0.0) -> Path:
    """Write a block of one interval, each sample of which is missing with probability ``gaps``."""
    ulid = block_ulid(number)
    start = START_MS + interval * INTERVAL_MS
    pool = _pool(interval, number if gaps else 0, gaps)
    draw = np.random.default_rng([SEED, 1])
    chosen = draw.integers(len(pool), size=series).tolist()
    phases = draw.integers(STEP_MS, size=series).tolist()
    symbols = sorted({text for each in range(series) for text in _labels(each)})
    numbers = {text: place for place, text in enumerate(symbols)}
    # Sorted by labels, like the numbers of their symbols.
    rows = sorted(([numbers[text] for text in _labels(each)], each) for each in range(series))
    with BlockWriter(parent, ulid, symbols) as writer:
        for first in range(0, series, BATCH_SERIES):
            batch = []
            for refs, each in rows[first : first + BATCH_SERIES]:
                metas, chunks = _chunks(pool[chosen[each]], start + phases[each])
                places = writer.write_chunks(chunks)
                batch.append((refs, [ChunkMeta(*times, ref) for times, ref in zip(metas, places, strict=True)]))
            writer.add_series(series_batch(batch))
        writer.finish(BlockMeta(ulid, start, start + INTERVAL_MS, BlockStats(), Compaction(1, (ulid,))))
    return parent / ulid


def copied_block(folder: Path, number: int) -> Path:
    """Return a copy of a block with another ULID."""
    ulid = block_ulid(number)
    copy = folder.parent / ulid
    shutil.copytree(folder, copy)
    meta = decode_meta((copy / "meta.json").read_bytes())
    (copy / "meta.json").write_bytes(encode_meta(replace(meta, ulid=ulid, compaction=Compaction(1, (ulid,)))))
    return copy


def _labels(number: int) -> tuple[bytes, ...]:
    """Return names and values of a series, by name."""
    pod = number // METRICS_PER_POD % PODS
    metric = number % METRICS_PER_POD + METRICS_PER_POD * (pod % (METRICS // METRICS_PER_POD))
    shard = number // (METRICS_PER_POD * PODS)
    return (
        *(b"__name__", b"metric_%03d_total" % metric),
        *(b"cluster", b"cluster-%02d" % shard),
        *(b"container", b"container-%02d" % (pod % CONTAINERS)),
        *(b"instance", b"10.0.%d.%d:9100" % divmod(pod % NODES, 100)),
        *(b"job", b"job-%d" % (pod % JOBS)),
        *(b"namespace", b"namespace-%02d" % (pod % NAMESPACES)),
        *(b"node", b"node-%03d" % (pod % NODES)),
        *(b"pod", b"pod-%05d-%06x" % (pod, pod * 2_654_435 % (1 << 24))),
        *(b"zone", b"zone-%d" % (pod % ZONES)),
    )


def _pool(interval: int, replica: int, gaps: float) -> list[list[Encoded]]:
    return [
        list(_encoded(interval, number, [SEED, 3, interval, number, pattern, replica], gaps))
        for number in range(POOL)
        for pattern in range(GAP_PATTERNS if gaps else 1)
    ]


def _encoded(interval: int, number: int, gap_seed: Sequence[int], gaps: float) -> Iterator[Encoded]:
    draw = np.random.default_rng([SEED, 2, interval, number])
    times = STEP_MS * np.arange(SAMPLES, dtype=np.int64)
    values = _values(draw, number % 3).view(np.uint64)
    if gaps:
        stays = np.random.default_rng(gap_seed).random(SAMPLES) >= gaps
        times, values = times[stays], values[stays]
    for first in range(0, len(times), CHUNK_SAMPLES):
        part = slice(first, first + CHUNK_SAMPLES)
        data = encode_xor(times[part], values[part])
        start = int(times[first])
        time_bytes = len(encode_svarint(start))
        yield Encoded(start, int(times[part][-1]), data[:2], data[2 + time_bytes :])


def _values(draw: np.random.Generator, kind: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if kind == 0:
        return 1e4 + np.cumsum(draw.integers(0, 20, SAMPLES)).astype(np.float64)
    if kind == 1:
        return np.round(np.cumsum(draw.random(SAMPLES)), 2)
    return draw.choice([0.0, 0.25, 0.5, 1.0], SAMPLES)


def _chunks(encoded: Sequence[Encoded], start: int) -> tuple[list[tuple[int, int]], list[Chunk]]:
    times = [(start + each.start_ms, start + each.end_ms) for each in encoded]
    chunks = [Chunk(ENCODING_XOR, each.head + encode_svarint(start + each.start_ms) + each.tail) for each in encoded]
    return times, chunks
