"""Lanes, tenants and jobs that an operator may name: a misspelt scope must not pass silently."""

from __future__ import annotations

from engine.schedule.errors import ScopeRefused
from engine.schedule.limits import Scope, ScopeKind
from webadmin.base.access.models import Tenant
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job


def is_known_tenant(name: str) -> bool:
    """Return whether a tenant has ever had data in any lane; "" stands for segments."""
    return (
        not name
        or Tenant.objects.filter(name=name).exists()
        or any(lane.has_tenant(name) for lane in lanes())
        or Job.objects.filter(tenant=name).exists()
    )


def check_lane(scope: Scope) -> None:
    """Raise ScopeRefused if the scope names an unknown lane: unlike tenants, lanes are not created later."""
    names = [lane.name for lane in lanes()]
    if scope.kind is ScopeKind.LANE and scope.value not in names:
        raise ScopeRefused(f"no lane {scope.value[:40]!r}: name one of {', '.join(names)}")


def scope_notes(scope: Scope) -> tuple[str, ...]:
    """Return notes about a scope that contains nothing yet."""
    if scope.kind is ScopeKind.TENANT and not is_known_tenant(scope.value):
        return (f"no tenant {scope.value!r} is known: this holds only once data of a tenant of that name arrives",)
    if scope.kind is ScopeKind.JOB and not Job.objects.filter(name=scope.value).exists():
        return (f"no job {scope.value!r} is known: this holds only once a job of that name is planned",)
    return ()
