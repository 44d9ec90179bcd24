"""Operators' actions as JSON: every field is checked, every error names it; and records as JSON."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from engine.protocol.fields import COUNT_MAX, Fields
from engine.schedule.limits import LimitName, Scope, ScopeKind
from engine.schedule.model import ParkedKind
from webadmin.base.access.models import TENANT_NAME_MAX
from webadmin.base.access.scopes import credential_of
from webadmin.schedule.models import JOB_NAME_MAX, LANE_MAX
from webadmin.schedule.operation_models import WHY_MAX, IsolationStop, LimitChange, Pause
from webadmin.schedule.register import NAMES_MAX, JobFilter
from webadmin.schedule.services.operation import Order
from webadmin.schedule.wall_times import WallTimes

ERROR_CLASS_MAX = 100
LEVEL_MAX = 100
SHARD_MAX = (1 << 32) - 1
SCOPE_KINDS = [kind.value for kind in ScopeKind]


def order_from_json(fields: Fields, actor: str) -> Order:
    """Read the reason of an action, which is required, and whether it is a dry run."""
    return Order(actor=actor, why=fields.text("why", WHY_MAX, empty=False), is_dry_run=flag(fields, "dry_run"))


def read_order(request: Request, shape: type[Serializer[Any]]) -> tuple[Fields, Order]:
    """Return the fields of a request's body, validated by this shape, and the actor, reason and dry-run flag."""
    fields = Fields.of(request.data, "$")
    refuse_unknown(fields, shape)
    return fields, order_from_json(fields, f"credential:{credential_of(request).name}")


def refuse_unknown(fields: Fields, shape: type[Serializer[Any]]) -> None:
    """Reject fields that the shape does not have, in nested objects too; not in lists of objects."""
    known = shape().fields
    fields.reject_unknown(known)
    for name, field in known.items():
        if isinstance(field, Serializer) and (inside := fields.optional(name)) is not None:
            refuse_unknown(inside, type(field))


def scope_from_json(fields: Fields) -> Scope:
    """Read the scope of a limit or pause; the default is everything."""
    scope = fields.optional("scope")
    if scope is None:
        return Scope(ScopeKind.GLOBAL)
    return Scope(ScopeKind(scope.choice("kind", SCOPE_KINDS)), scope.text("value", JOB_NAME_MAX, default=""))


def filter_from_json(fields: Fields) -> JobFilter:
    """Read the filter of jobs; absent fields do not narrow it."""
    wanted = fields.optional("filter") or Fields("$.filter", {})
    kind = _text(wanted, "kind", ERROR_CLASS_MAX)
    if kind is not None:
        kind = ParkedKind(wanted.choice("kind", [kind.value for kind in ParkedKind]))
    names = wanted.items("jobs", NAMES_MAX, default=())
    return JobFilter(
        names=tuple(text_item(wanted, "jobs", name, JOB_NAME_MAX) for name in names),
        everything=flag(wanted, "all"),
        error_class=_text(wanted, "error_class", ERROR_CLASS_MAX),
        lane=_text(wanted, "lane", LANE_MAX),
        tenant=_text(wanted, "tenant", TENANT_NAME_MAX),
        shard=integer(wanted, "shard", SHARD_MAX),
        level=integer(wanted, "level", LEVEL_MAX),
        kind=kind,
    )


def limit_from_json(fields: Fields) -> tuple[LimitName, int | None]:
    """Read a limit's name and value; null removes the value that was set."""
    name = LimitName(fields.choice("limit", [name.value for name in LimitName]))
    return name, integer_or_null(fields, "value", COUNT_MAX)


def flag(fields: Fields, name: str) -> bool:
    """Read a boolean; absent means false."""
    value = fields.values.get(name, False)
    if not isinstance(value, bool):
        raise fields.error(name, "true or false is expected")
    return value


def integer(fields: Fields, name: str, high: int) -> int | None:
    """Read an integer from 0 to ``high`` that may be absent or null."""
    return None if fields.values.get(name) is None else fields.integer(name, 0, high)


def integer_or_null(fields: Fields, name: str, high: int) -> int | None:
    """Read an integer from 0 to ``high``, or null, which removes the value that was set.

    The field is required: a misspelt name must not remove a value.
    """
    if name not in fields.values:
        raise fields.error(name, f"a whole number from 0 to {high} is expected, or null to take back what was set")
    return integer(fields, name, high)


def _text(fields: Fields, name: str, length_max: int) -> str | None:
    return None if fields.values.get(name) is None else fields.text(name, length_max)


def text_item(fields: Fields, name: str, value: object, length_max: int) -> str:
    """Read one text of a list."""
    return Fields(f"{fields.path}.{name}", {"item": value}).text("item", length_max, empty=False)


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
