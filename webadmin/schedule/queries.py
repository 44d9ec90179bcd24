"""The limits of the schedule that are in force."""

from __future__ import annotations

from collections.abc import Collection

from django.db.models import Q

from engine.schedule.limits import EVERYTHING, EffectiveLimits, LimitName, Scope, ScopeKind, SetLimit
from engine.schedule.model import ScheduleLimits
from webadmin.schedule import models
from webadmin.schedule.operation_models import LimitChange

LIMIT_COLUMNS = tuple(name.value for name in LimitName if hasattr(models.Limits, name.value))
"""Limits whose global default has a column in ``models.Limits``; it holds unless an operator sets another value."""


def limits_now(now_ms: int) -> models.Limits:
    """Return the global limits in force at this command time, as a row that is not to be saved; two queries."""
    return limits_in_force(models.Limits.objects.get(), effective_limits(now_ms))


def limits_in_force(row: models.Limits, limits: EffectiveLimits) -> models.Limits:
    """Apply the values that were set for everything to the row, which must not be saved."""
    for name in LIMIT_COLUMNS:
        setattr(row, name, limits.values.get((LimitName(name), EVERYTHING), getattr(row, name)))
    return row


def limit_default(name: LimitName) -> int:
    """Return a limit's default: its column's value, an equal share, or no limit."""
    if name in LIMIT_COLUMNS:
        return int(models.Limits.objects.values_list(name.value, flat=True).get())
    return 1 if name is LimitName.WEIGHT else 0


def effective_limits(now_ms: int, *, tenants: Collection[str] = (), jobs: Collection[str] = ()) -> EffectiveLimits:
    """Return the limits set for everything, for lanes, for these tenants and for these jobs by name; one query."""
    scopes = Q(scope_kind__in=[ScopeKind.GLOBAL, ScopeKind.LANE])
    if tenants:
        scopes |= Q(scope_kind=ScopeKind.TENANT, scope_value__in=tenants)
    if jobs:
        scopes |= Q(scope_kind=ScopeKind.JOB, scope_value__in=jobs)
    rows = LimitChange.objects.filter(_is_valid(now_ms), scopes)
    return EffectiveLimits.of(
        [
            SetLimit(
                name=LimitName(row.name),
                scope=Scope(ScopeKind(row.scope_kind), row.scope_value),
                value=row.value,
                number=row.id,
                valid_until_ms=row.valid_until_ms,
            )
            for row in rows.order_by()
        ],
        now_ms=now_ms,
    )


def _is_valid(now_ms: int) -> Q:
    return Q(Q(valid_until_ms=None) | Q(valid_until_ms__gt=now_ms), is_superseded=False)


def schedule_limits(limits: models.Limits) -> ScheduleLimits:
    """Return an operator's limits as the scheduler takes them."""
    return ScheduleLimits(
        lease_ms=limits.lease_seconds * 1000,
        failures_max=limits.failures_max,
        queue_max=limits.queue_max,
    )
