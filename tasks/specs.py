"""Reads the specifications of assigned jobs of every kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.lanes.catalog import jobs as catalog_jobs
from engine.lanes.catalog.jobs import CatalogCompactSpec
from engine.lanes.catalog.messages import read_catalog_spec
from engine.lanes.profiles import jobs as profile_jobs
from engine.lanes.profiles.jobs import ProfileMergeSpec
from engine.lanes.tables import jobs as table_jobs
from engine.lanes.tables.jobs import TableMergeSpec
from engine.lanes.tables.specs import read_table_spec
from engine.lanes.tsdb import jobs as tsdb_jobs
from engine.lanes.tsdb.jobs import TsdbMergeSpec
from engine.lanes.tsdb.specs import read_tsdb_spec
from engine.protocol.errors import InvalidMessage
from tasks.errors import BadAssignment
from tasks.merger import Outcome

Spec = ProfileMergeSpec | TsdbMergeSpec | TableMergeSpec | CatalogCompactSpec
READERS: Mapping[str, Callable[[dict[str, Any]], Spec]] = {
    catalog_jobs.KIND: read_catalog_spec,
    profile_jobs.KIND: ProfileMergeSpec.from_json,
    table_jobs.KIND: read_table_spec,
    tsdb_jobs.KIND: read_tsdb_spec,
}
"""Reader of a specification by the kind of its job. Both mergers support every kind."""
LONG_JOB_BYTES = 32 << 20
"""Source bytes (of a branch: bytes of its tokens) above which a job has its own batch, because a batch is reported when
its last job ends."""


def read_specs(specs: Mapping[str, dict[str, Any]]) -> tuple[list[Spec], dict[str, Outcome]]:
    """Split assignments into specifications that this build can merge, and outcomes of those it cannot read."""
    readable: list[Spec] = []
    outcomes: dict[str, Outcome] = {}
    for job, spec in specs.items():
        try:
            readable.append(_read_spec(job, spec))
        except BadAssignment as error:
            outcomes[job] = error
    return readable, outcomes


def takes_long(spec: dict[str, Any]) -> bool:
    """Return whether a job should have its own batch; False if the specification is malformed."""
    try:
        if spec["kind"] == catalog_jobs.KIND:
            return bool(sum(layer["file_bytes"] for layer in spec["layers"]) > LONG_JOB_BYTES)
        fields = {tsdb_jobs.KIND: "sources", table_jobs.KIND: "chunks"}
        parts = spec[fields[spec["kind"]]] if spec["kind"] in fields else ()
        return bool(sum(file["size"] for part in parts for file in part["files"]) > LONG_JOB_BYTES)
    except (KeyError, TypeError):
        return False  # its reader reports the error


def _read_spec(job: str, data: dict[str, Any]) -> Spec:
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in READERS:
        raise BadAssignment(f"this build merges {' and '.join(sorted(READERS))}, not {kind!r}")
    try:
        spec = READERS[kind](data)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidMessage) as error:
        raise BadAssignment(f"the specification cannot be read: {type(error).__name__} {error}") from error
    if spec.job != job:
        raise BadAssignment(f"the specification is for job {spec.job!r}, not {job!r}")
    return spec
