"""Import objects of a tenant's folder into a branch without copying them."""

from __future__ import annotations

import hashlib
import heapq
import mimetypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from django.db import transaction

from engine.formats.ranges.errors import UnsortedKeys
from engine.formats.ranges.model import Row, key_of
from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import ObjectInfo, ObjectNotFound, ObjectStore
from webadmin.base.access.store_places import lock_places, store_in_folder
from webadmin.base.access.tenant_places import place_of_tenant
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.errors import ImportRefused
from webadmin.lanes.catalog.models import Commit, ImportedPlace, Repository
from webadmin.lanes.catalog.object_places import key_in_tenants_folder, tenants_store, url_in
from webadmin.lanes.catalog.services.commits import NewCommit
from webadmin.lanes.catalog.services.move_heads import import_entries

SOURCES_MAX = 1000
PROGRESS_EVERY = 1000
"""Number of objects between two calls of ``progress``, which may stop the import."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """A source and its destination: one object, or (``is_prefix``) all whose URL has this prefix.

    ``destination`` replaces the prefix in the keys; all existing keys with the prefix ``destination`` are replaced by
    the import.
    """

    url: str
    destination: str
    is_prefix: bool = True


def import_objects(
    repository: Repository,
    branch_name: str,
    sources: Sequence[ImportSource],
    new: NewCommit,
    *,
    context: ActionContext,
    progress: Callable[[int], None] = lambda taken: None,
) -> Commit:
    """List the sources and commit their objects. An exception of ``progress`` stops the import without effect.

    Raises ImportRefused, AddressRefused, InvalidEntryKey, and the errors of moving a head.
    """
    keys = check_sources(repository, sources)
    with _recorded_places(repository, keys, sources):
        return _import(repository, branch_name, keys, sources, new, context, progress)


def _import(
    repository: Repository,
    branch_name: str,
    keys: Sequence[str],
    sources: Sequence[ImportSource],
    new: NewCommit,
    context: ActionContext,
    progress: Callable[[int], None],
) -> Commit:
    store = tenants_store(repository)

    @contextmanager
    def rows() -> Iterator[Iterator[Row]]:
        found = [_rows_of(repository, store, key, source) for key, source in zip(keys, sources, strict=True)]
        yield _counted(heapq.merge(*found, key=lambda row: row[0]), progress)

    replaced = [each.destination.encode() for each in sources if each.is_prefix]
    single = [each.destination.encode() for each in sources if not each.is_prefix]
    try:
        return import_entries(repository, branch_name, replaced, rows, new, keys=single, context=context)
    except UnsortedKeys as error:
        raise ImportRefused(f"two of the sources give the same key: {error}") from error


def check_sources(repository: Repository, sources: Sequence[ImportSource]) -> list[str]:
    """Return the sources' keys in the tenant's store. Raises ImportRefused, AddressRefused, InvalidEntryKey."""
    if not 0 < len(sources) <= SOURCES_MAX:
        raise ImportRefused(f"{len(sources)} sources; 1 to {SOURCES_MAX} are allowed")
    for source in sources:
        if not source.is_prefix or source.destination:
            key_of(source.destination)
    keys = [key_in_tenants_folder(repository, source.url, is_prefix=source.is_prefix) for source in sources]
    for key, source in zip(keys, sources, strict=True):
        _refuse_stores(repository, key, source)
    return keys


def _refuse_stores(repository: Repository, key: str, source: ImportSource) -> None:
    """Raise ImportRefused for objects of a table or bucket, where compaction deletes the objects it replaces."""
    used = store_in_folder(place_of_tenant(repository.tenant), key, is_prefix=source.is_prefix)
    if used is not None:
        # The message names only tables of the tenant itself.
        named = used.name if used.is_table_of(repository.tenant) else "another store"
        raise ImportRefused(
            f"{source.url} is, holds or lies in the place of {named}, where compaction deletes objects: copy them to a "
            "folder of their own and import that"
        )


@contextmanager
def _recorded_places(repository: Repository, keys: Sequence[str], sources: Sequence[ImportSource]) -> Iterator[None]:
    """Record the places of an import while it runs, and afterwards unless it fails.

    From then on no table or bucket is adopted there; one that was adopted since ``check_sources`` is refused here.
    """
    folder_url = place_of_tenant(repository.tenant)
    with transaction.atomic():
        lock_places()
        for key, source in zip(keys, sources, strict=True):
            _refuse_stores(repository, key, source)
        own = ImportedPlace.objects.bulk_create(
            ImportedPlace(repository=repository, folder_url=folder_url, key=key, is_prefix=source.is_prefix)
            for key, source in zip(keys, sources, strict=True)
        )
    ids = [place.pk for place in own]
    try:
        yield
    except BaseException:
        ImportedPlace.objects.filter(pk__in=ids).delete()
        raise
    _remove_covered(repository, own)


def _remove_covered(repository: Repository, own: Sequence[ImportedPlace]) -> None:
    """Remove earlier places that a new import contains, since imports are repeated."""
    earlier = ImportedPlace.objects.filter(
        repository=repository, folder_url=own[0].folder_url, pk__lt=min(place.pk for place in own)
    )
    single = {place.key for place in own if not place.is_prefix}
    prefixes = tuple(place.key for place in own if place.is_prefix)
    covered = [
        pk
        for pk, key, is_prefix in earlier.values_list("pk", "key", "is_prefix")
        if key.startswith(prefixes) or (not is_prefix and key in single)
    ]
    ImportedPlace.objects.filter(pk__in=covered).delete()


def _rows_of(repository: Repository, store: ObjectStore, key: str, source: ImportSource) -> Iterator[Row]:
    """Yield a source's entries by key: stores list in key order, and replacing the common prefix preserves it."""
    try:
        found: Iterable[ObjectInfo] = store.list(key) if source.is_prefix else [store.head(key)]
    except ObjectNotFound as error:
        raise ImportRefused(f"nothing lies at {source.url}") from error
    for info in found:
        path = source.destination + info.key.removeprefix(key) if source.is_prefix else source.destination
        value = imported_object(place_of_tenant(repository.tenant), info)
        yield key_of(path), value.identity, value.to_payload()


def _counted(rows: Iterable[Row], progress: Callable[[int], None]) -> Iterator[Row]:
    count = 0
    for row in rows:
        yield row
        count += 1
        if count % PROGRESS_EVERY == 0:
            progress(count)
    progress(count)


def imported_object(place: str, info: ObjectInfo) -> ObjectEntry:
    """Return the entry of a listed object. Its checksum is derived from place, size and time, not from its bytes."""
    seen = f"{info.key}\0{info.size}\0{info.modified_at}"
    return ObjectEntry(
        address=url_in(place, info.key),
        size=info.size,
        checksum=hashlib.sha256(seen.encode()).hexdigest()[:32],
        written_at=info.modified_at,
        content_type=mimetypes.guess_type(info.key)[0] or "application/octet-stream",
        is_relative=False,
    )
