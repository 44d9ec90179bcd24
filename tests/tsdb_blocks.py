"""Small Prometheus blocks of float series, in a folder or in a bucket, and jobs that merge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine.core import ulids
from engine.formats.prometheus.block_reader import BlockReader
from engine.formats.prometheus.block_writer import BlockWriter
from engine.formats.prometheus.chunks.xor import encode_xor
from engine.formats.prometheus.index.series_batch import series_batch
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction
from engine.formats.prometheus.model import ENCODING_XOR, Chunk, ChunkMeta, Labels
from engine.lanes.tsdb.jobs import BlockFile, TsdbMergeSpec, TsdbSource
from engine.storage import ObjectStore

START_MS = 1_700_000_000_000 // 7_200_000 * 7_200_000
"""Where the interval of these blocks begins: at a multiple of two hours."""
RANGE_MS = 7_200_000
STEP_MS = 15_000
SAMPLES_PER_CHUNK = 120
FOLDER = "acme/"
THANOS: dict[str, Any] = {"version": 1, "labels": {"region": "north"}, "downsample": {"resolution": 0}}
Series = Mapping[Labels, Sequence[tuple[int, float]]]


def block_id(number: int) -> str:
    """Return the id of block ``number``."""
    return ulids.make(START_MS + number, number.to_bytes(ulids.ENTROPY_BYTES, "big"))


def labels(number: int) -> Labels:
    """Return the labels of series ``number``."""
    return ((b"__name__", b"requests_total"), (b"instance", f"host-{number:05d}".encode()), (b"job", b"web"))


def replica(number: int, *, series: int = 20, samples: int = 240, gap: int = 7) -> Series:
    """Return the series of a replica: equal values in all of them, every ``gap``-th sample missing from place
    ``number`` on, so that replicas differ."""
    return {
        labels(each): [
            (START_MS + each + STEP_MS * place, float(each + place))
            for place in range(samples)
            if (place + number) % gap
        ]
        for each in range(series)
    }


def write_block(parent: Path, ulid: str, series: Series, *, level: int = 1) -> Path:
    """Write a block of the interval into ``parent/<ulid>``."""
    symbols = sorted({text for each in series for pair in each for text in pair})
    numbers = {text: number for number, text in enumerate(symbols)}
    with BlockWriter(parent, ulid, symbols) as writer:
        for each in sorted(series):
            cuts = [series[each][at : at + SAMPLES_PER_CHUNK] for at in range(0, len(series[each]), SAMPLES_PER_CHUNK)]
            refs = writer.write_chunks([_chunk(cut) for cut in cuts])
            metas = [ChunkMeta(cut[0][0], cut[-1][0], ref) for cut, ref in zip(cuts, refs, strict=True)]
            writer.add_series(series_batch([([numbers[text] for pair in each for text in pair], metas)]))
        writer.finish(BlockMeta(ulid, START_MS, START_MS + RANGE_MS, BlockStats(), Compaction(level, (ulid,))))
    return parent / ulid


def _chunk(samples: Sequence[tuple[int, float]]) -> Chunk:
    times, values = (np.array(column) for column in zip(*samples, strict=True))
    return Chunk(ENCODING_XOR, encode_xor(times.astype(np.int64), values.astype(np.float64).view(np.uint64)))


def put_block(store: ObjectStore, block: Path, folder: str = FOLDER) -> TsdbSource:
    """Upload a block as its producer would, ``meta.json`` last, and return it as a source of a job."""
    files = []
    for path in sorted(path for path in block.rglob("*") if path.is_file() and path.name != "meta.json"):
        name = path.relative_to(block).as_posix()
        if name == "tombstones" and BlockReader(block).meta.stats.num_tombstones == 0:
            continue
        store.put(f"{folder}{block.name}/{name}", path.read_bytes())
        files.append(BlockFile(name=name, size=path.stat().st_size))
    meta = (block / "meta.json").read_bytes()
    store.put(f"{folder}{block.name}/meta.json", meta)
    level = BlockReader(block).meta.compaction.level
    return TsdbSource(id=block.name, level=level, files=tuple(files), meta=meta)


def merge_spec(job: str, store: ObjectStore, sources: Sequence[TsdbSource], **changes: Any) -> TsdbMergeSpec:
    """Return the job that merges these sources."""
    usual: dict[str, Any] = {
        "job": job,
        "tenant": "acme",
        "level": max(source.level for source in sources),
        "bucket_url": store.url,
        "layout": "cortex",
        "folder": FOLDER,
        "range_start_ms": START_MS,
        "range_end_ms": START_MS + RANGE_MS,
        "sources": tuple(sources),
        "thanos": THANOS,
        "fence": 7,
    }
    return TsdbMergeSpec(**(usual | changes))


def replicas_job(
    job: str, store: ObjectStore, scratch: Path, *, first: int = 0, count: int = 2, series: int = 20, **changes: Any
) -> TsdbMergeSpec:
    """Write ``count`` replicas into a bucket, the ids from number ``first`` on, and return the job that merges them."""
    sources = []
    for number in range(first, first + count):
        block = write_block(scratch, block_id(number), replica(number - first, series=series))
        sources.append(put_block(store, block))
    return merge_spec(job, store, sources, **changes)


def samples(block: Path) -> dict[Labels, list[tuple[int, float]]]:
    """Return the float samples of a block by series."""
    reader = BlockReader(block)
    found: dict[Labels, list[tuple[int, float]]] = {}
    for series in reader.index.series():
        chunks = [reader.floats(meta, reader.chunk(meta)) for meta in series.chunks]
        found[series.labels] = [
            pair
            for times, values in chunks
            for pair in zip(times.tolist(), values.view(np.float64).tolist(), strict=True)
        ]
    return found


def download(store: ObjectStore, ulid: str, meta: bytes, parent: Path, folder: str = FOLDER) -> Path:
    """Fetch a result's files, put its ``meta.json`` beside them, and return its folder."""
    prefix = f"{folder}{ulid}/"
    for info in list(store.list(prefix)):
        path = parent / ulid / info.key.removeprefix(prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(info.key))
    (parent / ulid / "meta.json").write_bytes(meta)
    return parent / ulid
