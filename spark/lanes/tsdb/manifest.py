"""The lane of Prometheus blocks on Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from engine.core import ulids
from engine.core.checksums import crc32c
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.index.series_batch import series_batch
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
from engine.formats.prometheus.model import ENCODING_XOR, Chunk, ChunkMeta
from engine.lanes.tsdb.jobs import KIND, TsdbMergeSpec
from engine.lanes.tsdb.merge.merge import MergeRules, merge_blocks
from spark.lanes.manifest import Batch, SparkManifest
from spark.lanes.tsdb import merge

PROBE_BUDGET_BYTES = 64 << 20
SAMPLES = "samples of merged blocks"


def _merge(session: SparkSession, specs: Sequence[TsdbMergeSpec], batch: Batch) -> Mapping[str, Any]:
    return merge.run(session, specs, **batch.options())


def _known_answers() -> dict[str, str]:
    """Merge two small blocks of one series; return its samples, and the checksums of what was written."""
    names = [ulids.make(number, bytes(ulids.ENTROPY_BYTES)) for number in range(3)]
    with tempfile.TemporaryDirectory(prefix="lithify-probe-") as folder:
        parent = Path(folder)
        _write_block(parent, names[0], {1000: 1.0, 1015: 2.0})
        _write_block(parent, names[1], {1015: 2.0, 1030: 4.0})
        sources = [parent / name for name in names[:2]]
        merge_blocks(sources, parent, names[2], rules=MergeRules(), budget_bytes=PROBE_BUDGET_BYTES)
        block = BlockReader(parent / names[2])
        words = []
        for series in block.index.series():
            words.append(series.labels[0][1].decode())
            for meta in series.chunks:
                times, values = block.floats(meta, block.chunk(meta))
                words += [f"{at}={value}" for at, value in zip(times.tolist(), values.view("f8").tolist(), strict=True)]
        files = (parent / names[2] / name for name in ("index", "chunks/000001"))
        sums = " ".join(f"{crc32c(file.read_bytes()):08x}" for file in files)
        return {SAMPLES: " ".join(words), "bytes of merged blocks": sums}


def _write_block(parent: Path, name: str, samples: dict[int, float]) -> None:
    times = np.array(list(samples), np.int64)
    chunk = Chunk(ENCODING_XOR, encode_xor(times, np.array(list(samples.values()), np.float64).view(np.uint64)))
    with BlockWriter(parent, name, (b"__name__", b"up")) as writer:
        (ref,) = writer.write_chunks([chunk])
        writer.add_series(series_batch([((0, 1), (ChunkMeta(int(times[0]), int(times[-1]), ref),))]))
        writer.finish(BlockMeta(name, int(times[0]), int(times[-1]) + 1, BlockStats(), Compaction(1, (name,))))


MANIFEST = SparkManifest(
    name=KIND,
    merge=_merge,
    store_url=lambda spec: spec.bucket_url,
    kernels=("engine.lanes.tsdb.merge._series_hashes", "engine.lanes.tsdb.merge._series_merge"),
    known_answers=_known_answers,
    expected={SAMPLES: "up 1000=1.0 1015=2.0 1030=4.0"},
)
