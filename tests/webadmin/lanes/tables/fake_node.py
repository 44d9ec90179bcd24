"""A node that merges Parquet files with pyarrow in the simplest way; what schedule and readers see of it is real."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass, replace

import google_crc32c
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.lanes.tables.jobs import ChunkResult, TableChunk, TableMergeResult, TableMergeSpec, WrittenFile
from engine.lanes.tables.plain.manifest import read_manifest
from engine.protocol.messages import FailureReason, JobUpdate, UpdateStatus
from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tables.parquet_files import read_ids
from tests.webadmin.service import FakeWorker


@dataclass
class FakeNode:
    """A node: it writes outputs under the names that its jobs tell it, and reports them."""

    worker: FakeWorker

    def take(self, capacity: int = 1) -> list[TableMergeSpec]:
        """Poll for work only."""
        return [TableMergeSpec.from_json(given.spec) for given in self.worker.poll(capacity=capacity).assignments]

    def merge(self, spec: TableMergeSpec) -> TableMergeResult:
        """Write the outputs of every chunk."""
        store = open_store(spec.url)
        return TableMergeResult(chunks=tuple(_merge_chunk(spec, chunk, store) for chunk in spec.chunks))

    def success(self, spec: TableMergeSpec, result: TableMergeResult | None = None) -> JobUpdate:
        """Return the report of a finished job."""
        told = (result or self.merge(spec)).to_json()
        token = self.worker.held[spec.job].token
        return JobUpdate(job=spec.job, token=token, status=UpdateStatus.SUCCESS, result=json.loads(json.dumps(told)))

    def fail(self, spec: TableMergeSpec, reason: FailureReason) -> None:
        """Report that a job went wrong."""
        self.worker.poll(self.worker.released(spec.job, reason), capacity=0)

    def finish(self, *specs: TableMergeSpec) -> None:
        """Merge and report."""
        self.worker.poll(*(self.success(spec) for spec in specs), capacity=0)


def _merge_chunk(spec: TableMergeSpec, chunk: TableChunk, store: ObjectStore) -> ChunkResult:
    outputs, rows = [], 0
    for folder, files in chunk.folders().items():
        tables = []
        for file in files:
            table = pq.read_table(io.BytesIO(store.get(file.path)), partitioning=None)
            times = table.column(spec.time_column).cast(pa.int64())
            inside = pc.and_(pc.greater_equal(times, chunk.start_ms), pc.less(times, chunk.end_ms))
            tables.append(table if file.whole else table.filter(inside))
        merged = pa.concat_tables(tables, promote_options="default").sort_by(spec.time_column)
        rows += merged.num_rows
        if merged.num_rows:
            outputs.append(_write(spec, chunk, folder, merged, store))
    return ChunkResult(
        start_ms=chunk.start_ms,
        end_ms=chunk.end_ms,
        sources=tuple(file.path for file in chunk.files),
        outputs=tuple(outputs),
        rows_read=rows,
        rows_written=rows,
        bytes_read=sum(file.size for file in chunk.files),
        sums={},
    )


def _write(spec: TableMergeSpec, chunk: TableChunk, folder: str, table: pa.Table, store: ObjectStore) -> WrittenFile:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    path, data = spec.output_path(chunk, folder, 0), buffer.getvalue()
    store.put(path, data)
    times = table.column(spec.time_column).cast(pa.int64())
    return WrittenFile(
        path=path,
        size=len(data),
        crc32c=google_crc32c.value(data),
        rows=table.num_rows,
        min_time_ms=pc.min(times).as_py(),
        max_time_ms=pc.max(times).as_py(),
    )


def without_chunk(result: TableMergeResult, place: int = 0) -> TableMergeResult:
    """Return a result that says nothing of one chunk."""
    return replace(result, chunks=result.chunks[:place] + result.chunks[place + 1 :])


def seen_ids(store: ObjectStore) -> list[int]:
    """Return the ids of all rows that a reader of the table sees, and check what the manifest says of each file."""
    manifest = read_manifest(store)
    assert manifest is not None
    for file in manifest.files:
        assert store.head(file.path).size == file.size
    ids = read_ids(store, [file.path for file in manifest.files])
    assert len(ids) == sum(file.rows for file in manifest.files)
    return ids


def digest_of(store: ObjectStore) -> str:
    """Return a digest of all objects in a store."""
    told = [(info.key, hashlib.sha256(store.get(info.key)).hexdigest()) for info in store.list()]
    return hashlib.sha256(repr(told).encode()).hexdigest()
