"""Whose profiles a person who is signed in may see.

Operators who may view blocks see every tenant, unless confined to some (``webadmin.base.access.confinement``), as in
the rest of the admin. A tenant that is hidden from somebody looks like one that does not exist.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.base.access import operator_scopes
from webadmin.base.access.models import Tenant
from webadmin.base.connect import ConnectError
from webadmin.base.senders import Reader

EVERY_TENANT = "profiles.view_block"
"""The permission that opens all tenants."""
TENANTS_LISTED_MAX = 2_000


def readable_tenants(user: Any) -> QuerySet[Tenant]:
    """Return the tenants whose profiles a signed-in person may see."""
    return operator_scopes.readable_tenants(user, EVERY_TENANT)


def reader_of(user: Any, tenant: str) -> Reader:
    """Return who asks for a tenant's profiles. Raises ConnectError if there is no such tenant for this person."""
    if not tenant:
        raise ConnectError("invalid_argument", "no tenant is chosen", reason="no_tenant")
    if not readable_tenants(user).filter(name=tenant).exists():
        message = f"there is no tenant {tenant[:200]!r}, or you may not see its profiles"
        raise ConnectError("not_found", message, reason="no_such_tenant")
    return Reader((tenant,), f"operator:{user.get_username()}")
