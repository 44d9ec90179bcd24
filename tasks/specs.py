"""Reads the specifications of assigned jobs of every kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from engine.lanes.manifest import EngineManifest, JobSpec
from engine.protocol.errors import InvalidMessage
from engine.settings.lanes import lane_manifests
from tasks.errors import BadAssignment
from tasks.merger import Outcome

LONG_JOB_BYTES = 32 << 20
"""Source bytes above which a job has its own batch, because a batch is reported when its last job ends."""


def engine_lanes() -> dict[str, EngineManifest]:
    """Return the lanes by the kind of their jobs. Both mergers support every kind."""
    return lane_manifests("engine")


def read_specs(specs: Mapping[str, dict[str, Any]]) -> tuple[dict[str, list[JobSpec]], dict[str, Outcome]]:
    """Split assignments into specifications by kind that this build can merge, and outcomes of those it cannot read."""
    lanes = engine_lanes()
    readable: defaultdict[str, list[JobSpec]] = defaultdict(list)
    outcomes: dict[str, Outcome] = {}
    for job, spec in specs.items():
        try:
            lane = _lane_of(spec, lanes)
            readable[lane.name].append(_read_spec(job, spec, lane))
        except BadAssignment as error:
            outcomes[job] = error
    return readable, outcomes


def takes_long(spec: dict[str, Any]) -> bool:
    """Return whether a job should have its own batch; False if the specification is malformed."""
    try:
        return _lane_of(spec, engine_lanes()).source_bytes(spec) > LONG_JOB_BYTES
    except (BadAssignment, KeyError, TypeError):
        return False  # its reader reports the error


def _lane_of(spec: dict[str, Any], lanes: Mapping[str, EngineManifest]) -> EngineManifest:
    kind = spec.get("kind")
    if not isinstance(kind, str) or kind not in lanes:
        raise BadAssignment(f"this build merges {' and '.join(sorted(lanes))}, not {kind!r}")
    return lanes[kind]


def _read_spec(job: str, data: dict[str, Any], lane: EngineManifest) -> JobSpec:
    try:
        spec = lane.read_spec(data)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidMessage) as error:
        raise BadAssignment(f"the specification cannot be read: {type(error).__name__} {error}") from error
    if spec.job != job:
        raise BadAssignment(f"the specification is for job {spec.job!r}, not {job!r}")
    return spec
