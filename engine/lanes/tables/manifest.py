"""The lane of tables in the engine."""

from __future__ import annotations

from typing import Any

from engine.lanes.manifest import EngineManifest, MergeRun
from engine.lanes.tables.jobs import KIND, TableMergeSpec
from engine.lanes.tables.merge import merge_job
from engine.lanes.tables.specs import read_table_spec
from engine.storage import cached_store


def _merge(spec: TableMergeSpec, run: MergeRun) -> dict[str, Any]:
    """Merge Parquet files; a failed merge deletes its own output."""
    store = cached_store(spec.url)
    merged = merge_job.run(spec, store, scratch=run.scratch, cancelled=run.cancelled, progress=run.progress)
    return merged.to_json()


def _source_bytes(spec: dict[str, Any]) -> int:
    return sum(file["size"] for chunk in spec["chunks"] for file in chunk["files"])


MANIFEST = EngineManifest(name=KIND, read_spec=read_table_spec, merge=_merge, source_bytes=_source_bytes)
