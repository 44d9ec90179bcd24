"""JSON responses of chunk actions and bad files."""

from __future__ import annotations

from typing import Any

from django.db.models import Q

from webadmin.lanes.tables.models import BadFile, ChunkOverride
from webadmin.lanes.tables.states import ChunkOverrideKind

KINDS = [kind.value for kind in ChunkOverrideKind]
OVERRIDE_STATES = {"in_force": Q(ended_at_ms=None), "ended": Q(ended_at_ms__isnull=False)}
BAD_FILE_STATES = {"kept_out": Q(released_at_ms=None), "released": Q(released_at_ms__isnull=False)}


def override_to_json(row: ChunkOverride) -> dict[str, Any]:
    """Return a chunk action as JSON."""
    return {
        "id": row.id,
        "kind": row.kind,
        "state": "in_force" if row.ended_at_ms is None else "ended",
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "actor": row.actor,
        "why": row.why,
        "created_at_ms": row.created_at_ms,
        "ended_at_ms": row.ended_at_ms,
        "ended_because": row.ended_because,
    }


def bad_file_to_json(row: BadFile) -> dict[str, Any]:
    """Return a bad file as JSON, with the place of the error in it."""
    return {
        "id": row.id,
        "path": row.path,
        "state": "kept_out" if row.released_at_ms is None else "released",
        "size": row.size_bytes,
        "segment": row.segment_id,
        "error_class": row.error_class,
        "message": row.message,
        "place": row.place,
        "offset": row.offset,
        "at_ms": row.at_ms,
        "released_at_ms": row.released_at_ms,
        "released_by": row.released_by,
        "release_why": row.release_why,
    }
