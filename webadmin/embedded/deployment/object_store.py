"""Check the object store: every required operation works with the configured credentials."""

from __future__ import annotations

from collections.abc import Iterator

from django.conf import settings

from engine.core.errors import LithifyError
from engine.storage import open_store
from engine.storage.conformance import check_store
from webadmin.embedded.deployment.findings import Finding, Level


def check_object_store() -> Iterator[Finding]:
    """Run every operation of OBJECT_STORE_URL with scratch objects, and delete them."""
    url = settings.OBJECT_STORE_URL
    try:
        store = open_store(url)
        try:
            report = check_store(store)
        finally:
            store.close()
    except LithifyError as error:
        yield Finding(
            name="object_store",
            level=Level.ERROR,
            found=f"{url} cannot be opened: {error}",
            advice="check OBJECT_STORE_URL and the store's credentials",
        )
        return
    faults = [f"{result.claim}: {result.fault}" for result in report.results if result.fault]
    for fault in faults:
        yield Finding(
            name="object_store",
            level=Level.ERROR,
            found=f"{url}: {fault}",
            advice="allow the credential to read, write, list and delete, and check that the store supports the "
            "operation: check_object_store shows them all",
        )
    if not faults:
        yield Finding(name="object_store", level=Level.OK, found=f"{url} supports every operation that is needed")
