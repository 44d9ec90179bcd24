"""Tenants that a signed-in user may read on pages that require no view permission."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.base.access.confined_staff import tenants_of
from webadmin.base.access.models import Tenant
from webadmin.base.access.scopes import ANY_TENANT, TENANT_PREFIX


def readable_tenants(user: Any, every_tenant: str) -> QuerySet[Tenant]:
    """Return the tenants whose data a signed-in user may see.

    Confined users see the tenants they are confined to. Others need the permission ``every_tenant`` or the group
    ``tenant:*``.
    """
    confined = tenants_of(user)
    if confined is not None:
        return Tenant.objects.filter(name__in=confined)
    if user.has_perm(every_tenant) or user.groups.filter(name=TENANT_PREFIX + ANY_TENANT).exists():
        return Tenant.objects.all()
    return Tenant.objects.none()
