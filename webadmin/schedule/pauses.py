"""The pauses of the schedule in force."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from engine.schedule.limits import ScopeKind
from engine.schedule.pauses import PausedScope, PauseMode
from webadmin.schedule.command_log import read_time
from webadmin.schedule.operation_models import Pause

COLUMNS = {ScopeKind.LANE: "lane", ScopeKind.TENANT: "tenant", ScopeKind.LEVEL: "level"}
"""The columns of queues, jobs and tenants that a pause's scope is compared with; a global pause covers all rows."""


def paused_scopes(now_ms: int | None = None) -> tuple[PausedScope, ...]:
    """Return the pauses in force at this command time (default: now)."""
    rows = pauses_in_force(read_time().now_ms if now_ms is None else now_ms)
    return tuple(
        PausedScope(ScopeKind(kind), value, PauseMode(mode))
        for kind, value, mode in rows.order_by("id").values_list("scope_kind", "scope_value", "mode")
    )


def pauses_in_force(now_ms: int) -> QuerySet[Pause]:
    """Return the rows of pauses that were neither resumed nor have expired."""
    return Pause.objects.filter(Q(valid_until_ms=None) | Q(valid_until_ms__gt=now_ms), ended_at_ms=None)
