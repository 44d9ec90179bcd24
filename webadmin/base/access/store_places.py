"""Allowed locations of stores: below an allowed root, and no store within another.

Stores that overlap delete each other's objects: each treats unknown objects as its own leftovers. Objects that the
catalog imported without a copy must not be in a table or bucket, where compaction deletes what it replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from django.conf import settings

from engine.storage import StorageError, is_local, open_store
from engine.storage.locations import StoreLocation, locate_store
from webadmin.base.database.advisory_lock import lock_until_end

PLACES_LOCK = 1
OBJECTS = "OBJECT_STORE_URL"
TABLES = "TABLES_URL"
DELETES_IMPORTED = (
    "compaction deletes objects that it replaced, while commits name them: use a copy of the folder, or delete the "
    "repository and wait for its grace period"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedStore:
    """A store of this installation."""

    name: str
    url: str
    place: StoreLocation
    tenant: str = ""
    is_table: bool = False
    is_root_of_tables: bool = False

    def is_table_of(self, tenant: str) -> bool:
        """Return whether it is a table of this tenant."""
        return self.is_table and self.tenant == tenant

    def may_hold(self, other: UsedStore) -> bool:
        """Return whether the other store is allowed within this one: a table below TABLES_URL."""
        is_within = self.place.contains(other.place) and self.place != other.place
        return self.is_root_of_tables and other.is_table and is_within

    def conflicts_with(self, other: UsedStore) -> bool:
        """Return whether the stores are the same, or one is within the other where that is not allowed."""
        return self.place.overlaps(other.place) and not (self.may_hold(other) or other.may_hold(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedObjects:
    """Objects that a repository of the catalog imported without a copy: a key, or all keys with this prefix."""

    repository: str
    tenant: str
    folder_url: str
    key: str
    is_prefix: bool

    @property
    def name(self) -> str:
        url = urlsplit(self.folder_url)._replace(query="").geturl()
        return f"objects that the repository {self.repository} imported from {url.rstrip('/')}/{self.key}"

    def are_in(self, place: StoreLocation) -> bool:
        """Return whether objects of this import may be in a place."""
        folder = locate_store(self.folder_url)
        if folder.server != place.server:
            return place.server == "*" and bool(folder.server)
        path = "".join(f"{part}/" for part in folder.parts) + self.key
        inner = "".join(f"{part}/" for part in place.parts)
        return path.startswith(inner) or (self.is_prefix and inner.startswith(path))


_stores: list[Callable[[], Iterable[UsedStore]]] = []
_imports: list[Callable[[], Iterable[ImportedObjects]]] = []


def register_stores(stores: Callable[[], Iterable[UsedStore]]) -> None:
    """Register a function that returns stores of a lane."""
    _stores.append(stores)


def register_imports(imports: Callable[[], Iterable[ImportedObjects]]) -> None:
    """Register a function that returns what a lane imported without a copy, what can be restored included."""
    _imports.append(imports)


def imported_objects() -> Iterator[ImportedObjects]:
    """Yield what lanes have imported without a copy."""
    for imports in _imports:
        yield from imports()


def imports_in_new_store(url: str) -> ImportedObjects | None:
    """Return imported objects that a new table or bucket would merge and delete, None if there are none."""
    place = locate_store(url)
    return next((imported for imported in imported_objects() if imported.are_in(place)), None)


def imports_in_stores() -> Iterator[tuple[UsedStore, ImportedObjects]]:
    """Yield the tables and buckets with the imported objects in their places."""
    compacted = list(adopted_stores())
    for imported in imported_objects() if compacted else ():
        for used in compacted:
            if imported.are_in(used.place):
                yield used, imported


def used_stores() -> Iterator[UsedStore]:
    """Yield the stores of the settings, and those of lanes that are outside of the object store."""
    yield UsedStore(name=OBJECTS, url=settings.OBJECT_STORE_URL, place=locate_store(settings.OBJECT_STORE_URL))
    yield UsedStore(
        name=TABLES, url=settings.TABLES_URL, place=locate_store(settings.TABLES_URL), is_root_of_tables=True
    )
    yield from adopted_stores()


def adopted_stores() -> Iterator[UsedStore]:
    """Yield the stores of lanes that are outside of the object store."""
    for stores in _stores:
        yield from stores()


def conflict_of_new_store(url: str, *, is_table: bool) -> UsedStore | None:
    """Return a store that a new one would overlap, None if there is none. Raises InvalidStoreUrl."""
    new = UsedStore(name="", url=url, place=locate_store(url), is_table=is_table)
    return next((used for used in used_stores() if used.conflicts_with(new)), None)


def store_in_folder(folder: str, key: str, *, is_prefix: bool) -> UsedStore | None:
    """Return a store within ``folder`` that contains this key, or with ``is_prefix`` keys with this prefix."""
    outer = locate_store(folder)
    for used in used_stores():
        if not outer.contains(used.place):
            continue
        inner = "".join(f"{part}/" for part in used.place.parts[len(outer.parts) :])
        if key.startswith(inner) or (is_prefix and inner.startswith(key)):
            return used
    return None


def lock_places() -> None:
    """Lock out other transactions that add stores until this one ends, so that overlapping stores see each other.

    Call it before ``conflict_of_new_store``, in the transaction that adds the store.
    """
    lock_until_end(PLACES_LOCK)


def conflicts() -> Iterator[tuple[UsedStore, UsedStore]]:
    """Yield the pairs of used stores that overlap."""
    used = list(used_stores())
    for position, one in enumerate(used):
        for other in used[position + 1 :]:
            if one.conflicts_with(other):
                yield one, other


def root_refusal(url: str) -> str:
    """Return why no table and no bucket may be at a URL, "" if it is allowed. Raises InvalidStoreUrl."""
    place = locate_store(url)
    roots = [settings.TABLES_URL, *settings.STORE_ROOTS]
    if any(locate_store(root).contains(place) for root in roots):
        return ""
    return f"{url} lies below none of the allowed roots ({', '.join(roots)}): add its folder or bucket to STORE_ROOTS"


def folder_refusal(url: str) -> str:
    """Return why the folder of a new store cannot be used, such as a symbolic link; "" if it can be used.

    Stores that are not local folders are not checked.
    """
    if not is_local(url):
        return ""
    try:
        next(iter(open_store(url).list_folders()), None)
    except StorageError as error:
        return f"the folder cannot be used: {error.reason}"
    return ""
