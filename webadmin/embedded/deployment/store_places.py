"""Check that no store is inside another, and that tables and buckets are below the allowed roots."""

from __future__ import annotations

from collections.abc import Iterator

from webadmin.base.access.store_places import (
    DELETES_IMPORTED,
    adopted_stores,
    conflicts,
    imports_in_stores,
    root_refusal,
)
from webadmin.embedded.deployment.findings import Finding, Level

NAME = "store_places"


def check_store_places() -> Iterator[Finding]:
    """Compare all stores of the installation with each other and with STORE_ROOTS."""
    is_usable = True
    for one, other in conflicts():
        is_usable = False
        yield Finding(
            name=NAME,
            level=Level.ERROR,
            found=f"{one.name} ({one.url}) and {other.name} ({other.url}) overlap: each may delete the other's objects",
            advice="pause the table or bucket, move one of both to a place of its own, and change its setting",
        )
    for used, imported in imports_in_stores():
        is_usable = False
        yield Finding(
            name=NAME,
            level=Level.ERROR,
            found=f"{used.name} ({used.url}) holds {imported.name}: {DELETES_IMPORTED}",
            advice="pause the table or bucket, import a copy of the objects instead, and delete the repository",
        )
    adopted = list(adopted_stores())
    for store in adopted:
        if refusal := root_refusal(store.url):
            is_usable = False
            yield Finding(
                name=NAME, level=Level.WARNING, found=f"{store.name}: {refusal}", advice="add it, or remove the store"
            )
    if is_usable:
        found = f"OBJECT_STORE_URL, TABLES_URL and {len(adopted)} tables and buckets lie apart, below allowed roots"
        yield Finding(name=NAME, level=Level.OK, found=found)
