"""Whose data a person who is signed in may see: everybody's with a permission, else that of the tenants which the names
of his groups list, in the words that credentials use: ``tenant:shop``."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.access.models import Tenant
from webadmin.access.scopes import ANY_TENANT, TENANT_PREFIX


def readable_tenants(user: Any, every_tenant: str) -> QuerySet[Tenant]:
    """Return the tenants whose data a signed-in person may see; ``every_tenant`` is the permission that opens all."""
    if user.has_perm(every_tenant):
        return Tenant.objects.all()
    groups = user.groups.filter(name__startswith=TENANT_PREFIX).values_list("name", flat=True)
    names = {name.removeprefix(TENANT_PREFIX) for name in groups}
    return Tenant.objects.all() if ANY_TENANT in names else Tenant.objects.filter(name__in=names)
