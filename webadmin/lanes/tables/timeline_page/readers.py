"""Access of signed-in users to tables.

Operators who may view data sources see those of every tenant, unless they are confined to tenants
(``webadmin.base.access.confinement``). A table without access is indistinguishable from a missing one.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from webadmin.base.access.confined_staff import tenants_of
from webadmin.base.access.operator_scopes import readable_tenants
from webadmin.lanes.tables.models import DataSource

EVERY_TENANT = "tables.view_datasource"
"""Permission to view the tables of all tenants."""


def visible_sources(user: Any) -> QuerySet[DataSource]:
    """Return the tables that a signed-in user may see."""
    if tenants_of(user) is None and user.has_perm(EVERY_TENANT):
        return DataSource.objects.all()
    return DataSource.objects.filter(tenant__in=readable_tenants(user, EVERY_TENANT).values("name"))
