"""Operators' actions as JSON: every field is checked, every error names it; and records as JSON."""

from __future__ import annotations

from typing import Any

from django.db.models import Count

from webadmin.schedule.operation_models import IsolationStop, LimitChange, Pause
from webadmin.schedule.wall_times import WallTimes


def limit_to_json(row: LimitChange, walls: WallTimes) -> dict[str, Any]:
    """Return a change of a limit, with wall times."""
    return {
        "limit": row.name,
        "scope": {"kind": row.scope_kind, "value": row.scope_value},
        "value": row.value,
        "set_at_ms": walls.of(row.set_at_ms, row.command_index),
        "valid_until_ms": None if row.valid_until_ms is None else walls.of(row.valid_until_ms),
        "superseded": row.is_superseded,
        "actor": row.actor,
        "why": row.why,
        "command": row.command_index,
    }


def pause_to_json(row: Pause, walls: WallTimes) -> dict[str, Any]:
    """Return a pause, with wall times."""
    return {
        "scope": {"kind": row.scope_kind, "value": row.scope_value},
        "mode": row.mode,
        "since_ms": walls.of(row.since_ms, row.command_index),
        "valid_until_ms": None if row.valid_until_ms is None else walls.of(row.valid_until_ms),
        "actor": row.actor,
        "why": row.why,
        "command": row.command_index,
    }


def parked_to_json(jobs: Any) -> list[dict[str, Any]]:
    """Return parked jobs (``parked_jobs``) as JSON."""
    return [
        {
            "id": job.id,
            "job": job.name,
            "kind": job.why,
            "reason": job.parked_reason,
            "error_class": job.last_error_class,
            "lane": job.lane,
            "tenant": job.tenant,
            "shard": job.shard,
            "level": job.level,
            "failures": job.failures,
            "attempts": job.attempt_count,
            "bytes": job.source_bytes,
            "blocks": list(job.spec.get("sources", ())),  # jobs of branches have none
        }
        for job in jobs.annotate(attempt_count=Count("attempts"))
    ]


def stop_to_json(stop: IsolationStop, walls: WallTimes) -> dict[str, Any]:
    """Return a stop of quarantine."""
    return {
        "lane": stop.lane,
        "place": stop.place,
        "at_ms": walls.of(stop.at_ms, stop.command_index),
        "reason": stop.reason,
        "bad_sources": stop.bad_sources,
        "merged_sources": stop.merged_sources,
        "command": stop.command_index,
    }
