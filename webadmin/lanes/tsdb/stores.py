"""The buckets of Prometheus blocks among the stores of the installation."""

from __future__ import annotations

from collections.abc import Iterator

from engine.storage.locations import locate_store
from webadmin.base.access.store_places import UsedStore
from webadmin.lanes.tsdb.models import Bucket


def bucket_stores() -> Iterator[UsedStore]:
    """Yield the store of each bucket."""
    for name, url in Bucket.objects.order_by("id").values_list("name", "url"):
        yield UsedStore(name=f"bucket {name}", url=url, place=locate_store(url))
