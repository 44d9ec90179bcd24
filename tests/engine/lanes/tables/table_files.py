"""Parquet files for tests of merges, and what a merge should make of them by plain pyarrow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from engine.lanes.tables.jobs import TableChunk, TableFile, TableMergeResult, TableMergeSpec
from engine.lanes.tables.merge import merge_job
from engine.storage import ObjectStore, open_store

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A data source in a local folder."""

    path: Path

    @property
    def store(self) -> ObjectStore:
        return open_store(self.path.as_uri())

    def put(self, name: str, table: pa.Table, *, whole: bool = True, **options: Any) -> TableFile:
        """Write a file."""
        buffer = io.BytesIO()
        pq.write_table(table, buffer, **options)
        self.store.put(name, buffer.getvalue())
        return TableFile(path=name, size=len(buffer.getvalue()), rows=table.num_rows, whole=whole)

    def spec(self, *chunks: Sequence[TableFile], **fields: Any) -> TableMergeSpec:
        """Return a job over chunks of a day each, from 1970 on."""
        told = {
            "job": "tables/test",
            "tenant": "a",
            "source": "requests",
            "url": self.path.as_uri(),
            "time_column": "at",
            "fence": 1,
        }
        days = tuple(
            TableChunk(start_ms=day * DAY_MS, end_ms=(day + 1) * DAY_MS, files=tuple(files))
            for day, files in enumerate(chunks)
        )
        return TableMergeSpec(**(told | {"chunks": days} | fields))

    def merge(self, spec: TableMergeSpec, scratch: Path | None = None) -> TableMergeResult:
        """Merge in this process."""
        return merge_job.run(spec, self.store, scratch=scratch or self.path.parent / "scratch")

    def read(self, result: TableMergeResult) -> pa.Table:
        """Return the rows written, in the order of the outputs."""
        tables = [pq.read_table(self.path / file.path, partitioning=None) for file in result.outputs]
        return pa.concat_tables([table.replace_schema_metadata(None) for table in tables], promote_options="permissive")

    def files(self) -> list[str]:
        """Return the keys of all objects."""
        return sorted(info.key for info in self.store.list())
