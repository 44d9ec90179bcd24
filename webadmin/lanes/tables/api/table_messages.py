"""Query parameters and JSON responses of requests about tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet

from engine.protocol.errors import InvalidMessage
from engine.protocol.fields import COUNT_MAX, Fields
from engine.storage.locations import locate_store
from webadmin.base.access.tenant_places import place_of_tenant, without_server_paths
from webadmin.lanes.tables.models import Chunk, DataSource, Segment
from webadmin.lanes.tables.policies import SETTINGS
from webadmin.lanes.tables.services.take_files import Taken
from webadmin.lanes.tables.states import ChunkStatus, SegmentState, TaskState
from webadmin.lanes.tables.task_models import Task

ROWS_MAX = 1000
"""Maximum number of rows per response."""


def query_of(values: Mapping[str, str]) -> Fields:
    """Return query parameters as fields, with numeric parameters converted."""
    data: dict[str, Any] = dict(values)
    for name in ("start_ms", "end_ms", "after"):
        if name in data:
            data[name] = _number(name, data[name])
    return Fields("query", data)


def _number(name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
        raise InvalidMessage(f"query.{name}", "a whole number is expected")
    return int(text)


def rows_of(rows: QuerySet[Any], fields: Fields, states: Mapping[str, Q]) -> QuerySet[Any]:
    """Return the requested rows in order, filtered by time overlap and state, starting after a given row.

    ``states`` maps each state name of the API to its condition.
    """
    if "start_ms" in fields.values:
        rows = rows.filter(end_ms__gt=fields.integer("start_ms", -COUNT_MAX, COUNT_MAX))
    if "end_ms" in fields.values:
        rows = rows.filter(start_ms__lt=fields.integer("end_ms", -COUNT_MAX, COUNT_MAX))
    if "state" in fields.values:
        rows = rows.filter(states[fields.choice("state", list(states))])
    if "after" in fields.values:
        rows = rows.filter(id__gt=fields.integer("after", 0, COUNT_MAX))
    return rows.order_by("id")[:ROWS_MAX]


SEGMENT_STATES, CHUNK_STATES, TASK_STATES = (
    {state.value: Q(state=state) for state in states} for states in (SegmentState, ChunkStatus, TaskState)
)


def shown(text: str, tenant: str | None) -> str:
    """Return a text for a tenant without paths of the server; unchanged for an operator (None)."""
    return text if tenant is None else without_server_paths(text, tenant)


def taken_to_json(taken: Taken, tenant: str | None, *, is_dry_run: bool) -> dict[str, Any]:
    """Return the result of a registration as JSON, for a tenant or for an operator (None)."""
    done = taken.registered
    return {
        "dry_run": is_dry_run,
        "sequence": None if done is None else done.sequence,
        "start_ms": done.interval[0] if done and done.interval else None,
        "end_ms": done.interval[1] if done and done.interval else None,
        "replaced": 0 if done is None else done.hidden,
        "restamped": 0 if done is None else done.restamped,
        "files": [answer.to_json() for answer in taken.answers],
        "unchecked": [shown(text, tenant) for text in taken.unchecked],
    }


def table_to_json(source: DataSource, tenant: str | None) -> dict[str, Any]:
    """Return a table with its settings as JSON, for its tenant or for an operator (None).

    A tenant receives the URL only of a table in its own folder, because it writes files there.
    """
    policy = source.policy
    is_own = locate_store(place_of_tenant(source.tenant)).contains(locate_store(source.url))
    return {
        "name": source.name,
        "tenant": source.tenant,
        "url": source.url if is_own else shown(source.url, tenant),
        "time_column": source.time_column,
        "time_unit": source.time_unit,
        "columns": [{"name": name, "type": kind} for name, kind in source.columns],
        "is_paused": source.is_paused,
        "refusal": shown(source.refusal, tenant),
        "sequence": source.sequence,
        "published": source.published,
        "policy": {name: getattr(policy, name) for name in SETTINGS} | {"fingerprint": policy.fingerprint},
    }


def segment_to_json(row: Segment) -> dict[str, Any]:
    """Return a file of a table as JSON."""
    return {
        "id": row.id,
        "path": row.path,
        "state": row.state,
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "version": row.version,
        "partition": row.partition,
        "is_tombstone": row.is_tombstone,
        "size": row.size_bytes,
        "rows": row.row_count,
        "first_ms": row.first_ms,
        "last_ms": row.last_ms,
        "reason": row.reason,
    }


def chunk_to_json(row: Chunk, tenant: str | None) -> dict[str, Any]:
    """Return a chunk as JSON, for a tenant or for an operator (None)."""
    return {
        "id": row.id,
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "state": row.state,
        "version": row.version,
        "segments": row.segment_count,
        "bytes": row.byte_count,
        "priority": row.priority,
        "reason": row.reason,
        "task": row.task_id,
        "is_changed": row.is_dirty,
        "quarantined": shown(row.quarantine_reason, tenant) if row.is_quarantined else "",
    }


def task_to_json(row: Task, tenant: str | None) -> dict[str, Any]:
    """Return a task as JSON, for a tenant or for an operator (None); ``job`` is the state of its job."""
    return {
        "id": row.id,
        "start_ms": row.start_ms,
        "end_ms": row.end_ms,
        "state": row.state,
        "job": row.job.name if row.job else "",
        "job_state": row.job.state if row.job else "",
        "chunks": row.chunk_count,
        "segments": row.segment_count,
        "bytes": row.byte_count,
        "cost": row.cost,
        "priority": row.priority,
        "is_over_limit": row.is_over_limit,
        "cause": row.cause,
        "ended_because": shown(row.ended_because, tenant),
    }
