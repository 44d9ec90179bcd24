"""Whose tables a person who is signed in may look at.

Operators who may view data sources see every tenant's, unless they are confined to tenants
(``webadmin.base.access.confinement``). What is hidden from somebody looks as if it were not
there.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.base.access.confined_staff import tenants_of
from webadmin.base.access.operator_scopes import readable_tenants
from webadmin.lanes.tables.models import DataSource

EVERY_TENANT = "tables.view_datasource"
"""The permission that opens the tables of all tenants."""


def visible_sources(user: Any) -> QuerySet[DataSource]:
    """Return the tables that a signed-in person may see."""
    if tenants_of(user) is None and user.has_perm(EVERY_TENANT):
        return DataSource.objects.all()
    return DataSource.objects.filter(tenant__in=readable_tenants(user, EVERY_TENANT).values("name"))
