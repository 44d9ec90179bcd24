"""The tables among the stores of the installation."""

from __future__ import annotations

from collections.abc import Iterator

from engine.storage.locations import locate_store
from webadmin.base.access.store_places import UsedStore
from webadmin.lanes.tables.models import DataSource


def table_stores() -> Iterator[UsedStore]:
    """Yield the store of each table."""
    for tenant, name, url in DataSource.objects.order_by("id").values_list("tenant", "name", "url"):
        yield UsedStore(name=f"table {tenant}/{name}", url=url, place=locate_store(url), tenant=tenant, is_table=True)
