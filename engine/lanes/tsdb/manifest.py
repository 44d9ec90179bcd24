"""The lane of Prometheus blocks in the engine."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from engine.lanes.manifest import EngineManifest, MergeRun
from engine.lanes.tsdb.jobs import KIND, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.specs import read_tsdb_spec
from engine.storage import StorageError, cached_store


def _merge(spec: TsdbMergeSpec, run: MergeRun) -> dict[str, Any]:
    store = cached_store(spec.bucket_url)
    try:
        merged = merge_job.run(spec, store, scratch=run.scratch, cancelled=run.cancelled, progress=run.progress)
    except Exception:
        with suppress(StorageError):  # the error of the merge is the one to report
            merge_job.withdraw(spec, store)
        raise
    return merged.to_json()


def _source_bytes(spec: dict[str, Any]) -> int:
    return sum(file["size"] for source in spec["sources"] for file in source["files"])


MANIFEST = EngineManifest(name=KIND, read_spec=read_tsdb_spec, merge=_merge, source_bytes=_source_bytes)
