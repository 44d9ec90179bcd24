"""A bucket whose blocks have no samples, and a node that merges none: what the schedule sees of both is real."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.core import ulids
from engine.formats.prometheus.meta import BlockMeta, BlockStats, Compaction, decode_meta, encode_meta
from engine.lanes.tsdb.buckets.layout import META
from engine.lanes.tsdb.jobs import BlockFile, TsdbMergeResult, TsdbMergeSpec, WrittenBlock
from engine.lanes.tsdb.plan.partitions import SERIES_ENTRY_BYTES
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.storage import ObjectNotFound, ObjectStore
from tests.engine.lanes.tsdb import factories
from tests.webadmin.service import FakeWorker

HOUR_MS = 3_600_000
FILES = ("index", "chunks/000001")


def block_id(number: int, time_ms: int = 1_600_000_000_000) -> str:
    """Return a ULID that is always the same for the same number."""
    return ulids.make(time_ms, hashlib.sha256(b"%d" % number).digest()[: ulids.ENTROPY_BYTES])


def put_block(
    store: ObjectStore,
    folder: str,
    ulid: str,
    min_time_ms: int,
    max_time_ms: int,
    *,
    level: int = 1,
    sources: Sequence[str] = (),
    labels: dict[str, str] | None = None,
    series: int = 10,
    has_meta: bool = True,
) -> BlockMeta:
    """Put a block into a bucket, ``meta.json`` last."""
    meta = BlockMeta(
        ulid=ulid,
        min_time_ms=min_time_ms,
        max_time_ms=max_time_ms,
        stats=BlockStats(num_samples=series * 10, num_series=series, num_chunks=series),
        compaction=Compaction(level=level, sources=tuple(sources) or (ulid,)),
        thanos=None if labels is None else {"version": 1, "labels": labels, "downsample": {"resolution": 0}},
    )
    for name in FILES:
        # An index has room for its series.
        store.put(f"{folder}{ulid}/{name}", f"{ulid} {name}".encode().ljust(SERIES_ENTRY_BYTES * series))
    if has_meta:
        store.put(f"{folder}{ulid}/{META}", encode_meta(meta))
    return meta


def put_sound_block(store: ObjectStore, folder: str, ulid: str, max_time_ms: int = 2 * HOUR_MS) -> None:
    """Put a block of the first hours of 1970 whose every byte can be read."""
    files = factories.block_files()
    document = factories.meta_document(ulid=ulid, minTime=0, maxTime=max_time_ms)
    document["compaction"] = {"level": 1, "sources": [ulid]}
    for name, data in files.items():
        if name != META:
            store.put(f"{folder}{ulid}/{name}", data)
    store.put(f"{folder}{ulid}/{META}", json.dumps(document).encode())


def damage(store: ObjectStore, key: str, offset: int) -> None:
    """Turn one bit of an object around."""
    data = bytearray(store.get(key))
    data[offset] ^= 1
    store.put(key, bytes(data))


def visible(store: ObjectStore, folder: str = "") -> set[str]:
    """Return the blocks that a reader of the bucket opens: with ``meta.json``, without a deletion mark."""
    keys = {info.key.removeprefix(folder) for info in store.list(folder)}
    marked = {key.split("/")[0] for key in keys if key.endswith("/deletion-mark.json")}
    return {key.split("/")[0] for key in keys if key.endswith(f"/{META}")} - marked


def origins(store: ObjectStore, folder: str, blocks: Iterable[str]) -> set[str]:
    """Return the level-1 blocks whose data these blocks have."""
    return {ulid for block in blocks for ulid in decode_meta(store.get(f"{folder}{block}/{META}")).compaction.sources}


@dataclass
class FakeNode:
    """A node on a bucket: it uploads files under the names that its jobs tell it, and reports them."""

    worker: FakeWorker
    store: ObjectStore

    def take(self, capacity: int = 1) -> list[TsdbMergeSpec]:
        """Poll for work only."""
        return [TsdbMergeSpec.from_json(given.spec) for given in self.worker.poll(capacity=capacity).assignments]

    def merge(self, spec: TsdbMergeSpec) -> TsdbMergeResult:
        """Upload all but ``meta.json``."""
        ulid = spec.result_id()
        files = []
        series = max(decode_meta(source.meta).stats.num_series for source in spec.sources)
        for name in FILES:
            data = f"{ulid} {name}".encode().ljust(SERIES_ENTRY_BYTES * series)
            self.store.put(f"{spec.folder}{ulid}/{name}", data)
            files.append(BlockFile(name=name, size=len(data), crc32c=1))
        metas = [decode_meta(source.meta) for source in spec.sources]
        sources = sorted({origin for meta in metas for origin in meta.compaction.sources})
        meta = BlockMeta(
            ulid=ulid,
            min_time_ms=min(meta.min_time_ms for meta in metas),
            max_time_ms=max(meta.max_time_ms for meta in metas),
            stats=replace(metas[0].stats, num_samples=metas[0].stats.num_samples // spec.partitions),
            compaction=Compaction(level=1 + max(meta.compaction.level for meta in metas), sources=tuple(sources)),
            thanos=spec.thanos,
        )
        block = WrittenBlock(id=ulid, files=tuple(files), meta=encode_meta(meta))
        return TsdbMergeResult(sources=tuple(source.id for source in spec.sources), block=block, bytes_read=1)

    def success(self, spec: TsdbMergeSpec, result: TsdbMergeResult | None = None) -> JobUpdate:
        """Return the report of a finished job."""
        told = (result or self.merge(spec)).to_json()
        token = self.worker.held[spec.job].token
        return JobUpdate(job=spec.job, token=token, status=UpdateStatus.SUCCESS, result=told)

    def failed(self, spec: TsdbMergeSpec, reason: FailureReason) -> JobUpdate:
        """Return the report of a job that went wrong."""
        return self.worker.released(spec.job, reason)

    def finish(self, *specs: TsdbMergeSpec) -> None:
        """Report that these jobs are done; the poll must accept it."""
        self.worker.poll(*(self.success(spec) for spec in specs), capacity=0)

    def work_off(self) -> int:
        """Take and finish jobs until there is none; return how many there were."""
        count = 0
        while specs := self.take(4):
            self.finish(*specs)
            count += len(specs)
        return count


def has(store: ObjectStore, key: str) -> bool:
    """Say whether there is such an object."""
    try:
        store.head(key)
    except ObjectNotFound:
        return False
    return True
