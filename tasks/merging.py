"""The two ways a node can merge: on Spark (the way), or in this process (small machines without Java, tests).

Both give the same bytes. Which one is the setting MERGE_ON.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.protocol.profile_jobs import KIND, ProfileMergeSpec
from tasks.errors import BadAssignment
from tasks.merger import Merger, Outcome
from tasks.settings import NodeSettings


def make_merger(settings: NodeSettings, scratch: Path) -> Merger:
    """Return the merger of the setting MERGE_ON; nothing of Spark is imported unless it is wanted."""
    if settings.merge_on == "engine":
        from tasks.engine_merger import EngineMerger

        return EngineMerger(settings.object_store_url, scratch)
    from tasks.spark_merger import SparkMerger

    return SparkMerger(settings.object_store_url, scratch)


def read_specs(specs: Mapping[str, dict[str, Any]]) -> tuple[list[ProfileMergeSpec], dict[str, Outcome]]:
    """Split assignments into specifications that this build can merge, and outcomes of those it cannot read."""
    readable: list[ProfileMergeSpec] = []
    outcomes: dict[str, Outcome] = {}
    for job, spec in specs.items():
        try:
            readable.append(_read_spec(job, spec))
        except BadAssignment as error:
            outcomes[job] = error
    return readable, outcomes


def _read_spec(job: str, data: dict[str, Any]) -> ProfileMergeSpec:
    if data.get("kind") != KIND:
        raise BadAssignment(f"this build merges {KIND!r}, not {data.get('kind')!r}")
    try:
        spec = ProfileMergeSpec.from_json(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadAssignment(f"the specification cannot be read: {type(error).__name__} {error}") from error
    if spec.job != job:
        raise BadAssignment(f"the specification is for {spec.job!r}")
    return spec
