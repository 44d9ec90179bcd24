"""What repositories imported without a copy: no table and no bucket may be there."""

from __future__ import annotations

from collections.abc import Iterator

from webadmin.base.access.store_places import ImportedObjects
from webadmin.lanes.catalog.models import ImportedPlace


def repository_imports() -> Iterator[ImportedObjects]:
    """Yield the imports of repositories, of those that can be restored too."""
    columns = ("repository__tenant", "repository__name", "folder_url", "key", "is_prefix")
    for tenant, name, folder_url, key, is_prefix in (
        ImportedPlace.objects.order_by("id").values_list(*columns).iterator()
    ):
        yield ImportedObjects(
            repository=f"{tenant}/{name}", tenant=tenant, folder_url=folder_url, key=key, is_prefix=is_prefix
        )
