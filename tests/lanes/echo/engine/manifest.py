"""The lane of text files in the engine."""

from __future__ import annotations

from typing import Any

from engine.lanes.manifest import EngineManifest, MergeRun
from tests.lanes.echo.engine import merge
from tests.lanes.echo.engine.jobs import KIND, EchoSpec


def _merge(spec: EchoSpec, run: MergeRun) -> dict[str, Any]:
    return merge.run(spec, run.store, cancelled=run.cancelled).to_json()


def _source_bytes(spec: dict[str, Any]) -> int:
    return sum(text["size"] for text in spec["sources"])


MANIFEST = EngineManifest(name=KIND, read_spec=EchoSpec.from_json, merge=_merge, source_bytes=_source_bytes)
