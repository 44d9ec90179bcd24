"""Imports objects that lie in a tenant's folder into a branch, without copying them."""

from __future__ import annotations

import hashlib
import heapq
import mimetypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.catalog.errors import UnsortedKeys
from engine.catalog.model import Row, key_of
from engine.catalog.object_entry import ObjectEntry
from engine.storage import ObjectInfo, ObjectStore
from webadmin.catalog.errors import ImportRefused
from webadmin.catalog.models import Commit, Repository
from webadmin.catalog.object_places import key_in_tenants_folder, tenants_store
from webadmin.catalog.services.commits import NewCommit
from webadmin.catalog.services.move_heads import import_entries
from webadmin.schedule.services.operation import Order
from webadmin.timeline.places import place_of_tenant

SOURCES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """What to import to where: one object, or (``is_prefix``) all whose URL begins so; ``destination`` then stands for
    that beginning, and all keys that begin with it are replaced by what is imported."""

    url: str
    destination: str
    is_prefix: bool = True


def import_objects(
    repository: Repository, branch_name: str, sources: Sequence[ImportSource], new: NewCommit, *, order: Order
) -> Commit:
    """List the sources and commit their objects. Raises ImportRefused, AddressRefused, and what head moves raise."""
    if not 0 < len(sources) <= SOURCES_MAX:
        raise ImportRefused(f"{len(sources)} sources; 1 to {SOURCES_MAX} are allowed")
    store = tenants_store(repository)
    keys = [key_in_tenants_folder(repository, each.url, is_prefix=each.is_prefix) for each in sources]

    @contextmanager
    def rows() -> Iterator[Iterator[Row]]:
        found = [_rows_of(repository, store, key, source) for key, source in zip(keys, sources, strict=True)]
        yield heapq.merge(*found, key=lambda row: row[0])

    prefixes = [_bytes_of(each.destination) for each in sources if each.is_prefix]
    single = [key_of(each.destination) for each in sources if not each.is_prefix]
    try:
        return import_entries(repository, branch_name, prefixes, rows, new, keys=single, order=order)
    except UnsortedKeys as error:
        raise ImportRefused(f"two of the sources give the same key: {error}") from error


def _bytes_of(prefix: str) -> bytes:
    return key_of(prefix) if prefix else b""


def _rows_of(repository: Repository, store: ObjectStore, key: str, source: ImportSource) -> Iterator[Row]:
    """Yield a source's entries by key: a store lists them so, and what replaces the beginning is the same for all."""
    found: Iterable[ObjectInfo] = store.list(key) if source.is_prefix else [store.head(key)]
    for info in found:
        path = source.destination + info.key.removeprefix(key) if source.is_prefix else source.destination
        value = imported_object(place_of_tenant(repository.tenant), info)
        yield key_of(path), value.identity, value.to_payload()


def imported_object(place: str, info: ObjectInfo) -> ObjectEntry:
    """Return the entry of an object that was listed. Its checksum stands for place, size and time, not for bytes."""
    seen = f"{info.key}\0{info.size}\0{info.modified_at}"
    return ObjectEntry(
        address=f"{place.partition('?')[0]}/{info.key}",
        size=info.size,
        checksum=hashlib.sha256(seen.encode()).hexdigest()[:32],
        written_at=info.modified_at,
        content_type=mimetypes.guess_type(info.key)[0] or "application/octet-stream",
        is_relative=False,
    )
