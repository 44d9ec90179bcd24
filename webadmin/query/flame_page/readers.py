"""Tenants whose profiles a logged-in user may read.

Users with permission to view blocks see every tenant, unless confined to some (``webadmin.base.access.confinement``),
as in the rest of the admin. A tenant without access is reported as not found.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.base.access import operator_scopes
from webadmin.base.access.models import Tenant
from webadmin.base.connect import ConnectError
from webadmin.base.senders import Reader

EVERY_TENANT = "profiles.view_block"
"""Permission to read all tenants."""
TENANTS_LISTED_MAX = 2_000


def readable_tenants(user: Any) -> QuerySet[Tenant]:
    """Return the tenants whose profiles a user may read."""
    return operator_scopes.readable_tenants(user, EVERY_TENANT)


def reader_of(user: Any, tenant: str) -> Reader:
    """Return the reader of a tenant's profiles.

    Raises ConnectError if the tenant does not exist or is not permitted.
    """
    if not tenant:
        raise ConnectError("invalid_argument", "no tenant is chosen", reason="no_tenant")
    if not readable_tenants(user).filter(name=tenant).exists():
        message = f"there is no tenant {tenant[:200]!r}, or you may not see its profiles"
        raise ConnectError("not_found", message, reason="no_such_tenant")
    return Reader((tenant,), f"operator:{user.get_username()}")
