"""The lane of catalogs in the engine."""

from __future__ import annotations

from typing import Any

from engine.core.thread_priority import run_at_low_priority
from engine.lanes.catalog import compact_job
from engine.lanes.catalog.jobs import KIND, CatalogCompactSpec
from engine.lanes.catalog.messages import read_catalog_spec
from engine.lanes.manifest import EngineManifest, MergeRun
from engine.protocol.messages import Progress


def _merge(spec: CatalogCompactSpec, run: MergeRun) -> dict[str, Any]:
    """Compact the tokens of a branch at idle priority; files of a failed run are deleted by the sweep."""

    def report(done: int, total: int) -> None:
        run.progress(Progress(done=done, total=total, phase="merge"))

    def compact() -> dict[str, Any]:
        return compact_job.run(spec, run.store, cancelled=run.cancelled, progress=report).to_json()

    return run_at_low_priority(compact)


def _source_bytes(spec: dict[str, Any]) -> int:
    """Return the bytes of the tokens of a branch."""
    return sum(layer["file_bytes"] for layer in spec["layers"])


MANIFEST = EngineManifest(name=KIND, read_spec=read_catalog_spec, merge=_merge, source_bytes=_source_bytes)
