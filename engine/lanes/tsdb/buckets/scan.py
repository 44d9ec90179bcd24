"""Find new blocks and marks in a folder with few requests.

The cost of a scan: one listing of the folder's blocks and one of its marks (a thousand names per request), two requests
per new block, one per new mark, one or two per partial or bad block. Where marks exist only in blocks (Thanos), and
where most blocks are unknown, one listing of all objects replaces the listings per block.

A block whose ``meta.json`` alone was deleted, without a mark, is noticed only by such a ``deep`` scan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from engine.core.errors import BadObject
from engine.lanes.tsdb.buckets.block_objects import Objects, list_all_blocks, list_block, partial_upload, read_block
from engine.lanes.tsdb.buckets.bucket_index import BucketIndex, read_index
from engine.lanes.tsdb.buckets.layout import META, TENANT_DELETION, Layout, is_ulid, mark_name
from engine.lanes.tsdb.buckets.marks import decode_mark
from engine.lanes.tsdb.buckets.model import (
    BadBlock,
    FolderScan,
    FoundBlock,
    KnownFolder,
    Mark,
    MarkKey,
    MarkKind,
    PartialUpload,
)
from engine.storage import ObjectInfo, ObjectNotFound, ObjectStore, StorageError

REQUESTS_AT_ONCE = 16
NAMES_PER_REQUEST = 1000
"""The names that a store returns per listing request."""
OBJECTS_PER_BLOCK = 20
"""An estimate, used to compare one full listing with one listing per unknown block."""
CLOCK_SKEW_MAX_S = 600.0
"""Clock difference between the store and the index writer up to which the index's deletion marks are not trusted."""
ALL_KINDS = tuple(MarkKind)

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_BlockOutcome = tuple[str, Objects, FoundBlock | BadObject | StorageError | None]


def scan_folder(
    store: ObjectStore,
    layout: Layout,
    folder: str,
    known: KnownFolder | None = None,
    *,
    deep: bool = False,
    kinds: Collection[MarkKind] = ALL_KINDS,
    index: BucketIndex | None = None,
) -> FolderScan:
    """Return the content of a folder and its differences from ``known``.

    Only marks of ``kinds`` are read. ``index`` is the bucket index if the caller has read it; otherwise it is read if
    that saves requests. Raises StorageError if the folder cannot be listed; errors of single blocks or marks are part
    of the result. ``requests`` counts all requests of ``store`` meanwhile.
    """
    return _Scan(store, layout, folder, known or KnownFolder(), frozenset(kinds), index).run(deep)


class _Scan:
    def __init__(
        self,
        store: ObjectStore,
        layout: Layout,
        folder: str,
        known: KnownFolder,
        kinds: Collection[MarkKind],
        index: BucketIndex | None,
    ) -> None:
        self._store, self._layout, self._folder, self._known = store, layout, folder, known
        self._kinds, self._index = kinds, index
        self._ignored = 0
        self._is_tenant_deleted = False

    def run(self, deep: bool) -> FolderScan:
        before = self._store.usage.requests()
        present, unreadable = self._present(), dict[str, StorageError]()
        is_deep = bool(present) and (deep or self._is_deep_cheaper(present))
        if is_deep:
            objects = list_all_blocks(self._store, self._folder, self._known.complete)
            present = objects.keys()
        else:
            listed = dict(self._map(self._listed, sorted(present - self._known.complete)))
            unreadable = {ulid: each for ulid, each in listed.items() if isinstance(each, StorageError)}
            objects = {ulid: each for ulid, each in listed.items() if each and not isinstance(each, StorageError)}
            present = objects.keys() | unreadable.keys() | (present & self._known.complete)
        blocks = self._blocks(objects) + [(ulid, {}, error) for ulid, error in unreadable.items()]
        marks = self._marks(objects, present)
        after = self._store.usage.requests()
        requests = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
        return self._result(present, blocks, marks, requests)

    def _present(self) -> Set[str]:
        """List the blocks that have any object; other names are counted as ignored."""
        present = set()
        for name in self._store.list_folders(self._folder):
            name = name.removeprefix(self._folder).removesuffix("/")
            if is_ulid(name):
                present.add(name)
            elif name not in self._layout.own_folders:
                self._ignored += 1
        return present

    def _is_deep_cheaper(self, present: Set[str]) -> bool:
        unknown = len(present - self._known.complete)
        only_in_blocks = bool(self._kinds) and not self._layout.marks_folder(self._folder)
        return only_in_blocks or unknown > 1 + len(present) * OBJECTS_PER_BLOCK // NAMES_PER_REQUEST

    def _listed(self, ulid: str) -> tuple[str, Objects | StorageError]:
        try:
            return ulid, list_block(self._store, self._folder, ulid)
        except StorageError as error:
            return ulid, error

    def _blocks(self, objects: Mapping[str, Objects]) -> list[_BlockOutcome]:
        """Read all blocks that are not known to be complete, and known ones that lost their ``meta.json``."""
        to_read = [
            (ulid, each)
            for ulid, each in sorted(objects.items())
            if ulid not in self._known.complete or META not in each
        ]
        return self._map(self._block, to_read)

    def _block(self, item: tuple[str, Objects]) -> _BlockOutcome:
        ulid, objects = item
        if META not in objects and ulid in self._known.complete:  # Not all objects of a settled block were kept.
            return self._reread_block(ulid)
        if META not in objects:
            return ulid, objects, None
        try:
            return ulid, objects, read_block(self._store, self._layout, self._folder, ulid, objects)
        except ObjectNotFound:  # Deleted since it was listed.
            return ulid, {name: info for name, info in objects.items() if name != META}, None
        except BadObject:
            # A listing of several pages is no snapshot: a file may have been uploaded after its page was read.
            return self._reread_block(ulid)
        except StorageError as error:
            return ulid, objects, error

    def _reread_block(self, ulid: str) -> _BlockOutcome:
        _, objects = self._listed(ulid)
        if isinstance(objects, StorageError):
            return ulid, {}, objects
        if META not in objects:
            return ulid, objects, None
        try:
            return ulid, objects, read_block(self._store, self._layout, self._folder, ulid, objects)
        except ObjectNotFound:
            return ulid, {name: info for name, info in objects.items() if name != META}, None
        except (BadObject, StorageError) as error:
            return ulid, objects, error

    def _marks(self, objects: Mapping[str, Objects], present: Collection[str]) -> dict[MarkKey, Mark]:
        """Return all marks: known ones if their object is unchanged, otherwise read."""
        places = self._marks_in_blocks(objects) | self._global_marks()
        marks = {}
        unread = []
        for key, (info, is_global) in places.items():
            known = self._known.marks.get(key)
            if known and known.modified_at_s == info.modified_at and known.is_global == is_global:
                marks[key] = known
            else:
                unread.append((key, info, is_global))
        for mark in self._map(self._mark, self._from_index(unread, marks)):
            if mark:
                marks[mark.key] = mark
        # Marks of blocks that were not listed are unchanged.
        for key, mark in self._known.marks.items():
            if key not in marks and not mark.is_global and mark.ulid in present and mark.ulid not in objects:
                marks[key] = mark
        return marks

    def _marks_in_blocks(self, objects: Mapping[str, Objects]) -> dict[MarkKey, tuple[ObjectInfo, bool]]:
        return {
            (ulid, kind): (each[mark_name(kind)], False)
            for ulid, each in objects.items()
            for kind in self._kinds
            if mark_name(kind) in each
        }

    def _global_marks(self) -> dict[MarkKey, tuple[ObjectInfo, bool]]:
        prefix = self._layout.marks_folder(self._folder)
        if not prefix or not self._kinds:
            return {}
        places = {}
        for info in self._store.list(prefix):
            name = info.key.removeprefix(prefix)
            ulid, _, rest = name.partition("-")
            kind = next((kind for kind in MarkKind if mark_name(kind) == rest), None)
            if name == TENANT_DELETION:
                self._is_tenant_deleted = True
            elif kind is None or not is_ulid(ulid):
                self._ignored += 1
            elif kind in self._kinds:
                places[ulid, kind] = (info, True)
        return places

    def _from_index(
        self, unread: list[tuple[MarkKey, ObjectInfo, bool]], marks: dict[MarkKey, Mark]
    ) -> list[tuple[MarkKey, ObjectInfo, bool]]:
        """Take deletion marks that are older than the bucket index from it; return the marks still to read."""
        deletions = sum(kind is MarkKind.DELETION for (_, kind), _, _ in unread)
        if self._index is None and deletions > 1:
            self._index = read_index(self._store, self._layout, self._folder)
        if self._index is None:
            return unread
        rest = []
        for key, info, is_global in unread:
            ulid, kind = key
            time_s = self._index.deletion_times_s.get(ulid)
            is_settled = info.modified_at < self._index.updated_at_s - CLOCK_SKEW_MAX_S
            if kind is MarkKind.DELETION and is_global and is_settled and time_s is not None:
                marks[key] = Mark(
                    ulid=ulid, kind=kind, time_s=time_s, modified_at_s=info.modified_at, is_global=is_global
                )
            else:
                rest.append((key, info, is_global))
        return rest

    def _mark(self, item: tuple[MarkKey, ObjectInfo, bool]) -> Mark | None:
        (ulid, kind), info, is_global = item
        try:
            mark = decode_mark(self._store.get(info.key), kind, ulid)
            return replace(mark, modified_at_s=info.modified_at, is_global=is_global)
        except ObjectNotFound:  # Removed since it was listed.
            return None
        except BadObject as error:
            fault, modified_at_s = str(error.in_object(info.key)), info.modified_at
        except StorageError as error:
            fault, modified_at_s = str(error), 0.0  # The next scan tries again.
        return Mark(ulid=ulid, kind=kind, time_s=0, modified_at_s=modified_at_s, is_global=is_global, fault=fault)

    def _result(
        self,
        present: Collection[str],
        outcomes: Sequence[_BlockOutcome],
        marks: Mapping[MarkKey, Mark],
        requests: Mapping[str, int],
    ) -> FolderScan:
        found: dict[str, FoundBlock] = {}
        partial: dict[str, PartialUpload] = {}
        bad: dict[str, BadBlock] = {}
        for ulid, objects, outcome in outcomes:
            if isinstance(outcome, FoundBlock):
                found[ulid] = outcome
            elif outcome is not None:
                bad[ulid] = BadBlock(folder=self._folder, ulid=ulid, error=outcome)
            elif objects:
                is_marked = (ulid, MarkKind.DELETION) in marks
                partial[ulid] = partial_upload(self._folder, ulid, objects, has_deletion_mark=is_marked)
        unread_blocks = self._known.complete - {ulid for ulid, _, _ in outcomes}
        complete = frozenset(ulid for ulid in unread_blocks if ulid in present) | found.keys()
        seen = self._known.partial | self._known.bad
        new = [block for ulid, block in found.items() if ulid not in self._known.complete]
        return FolderScan(
            folder=self._folder,
            known=KnownFolder(
                complete=complete,
                partial=frozenset(partial),
                bad=frozenset(bad),
                marks=marks,
            ),
            appeared=tuple(block for block in new if block.ulid not in seen),
            completed=tuple(block for block in new if block.ulid in seen),
            vanished=tuple(sorted(self._known.complete - complete)),
            partial=tuple(partial.values()),
            bad=tuple(bad.values()),
            new_marks=tuple(mark for key, mark in marks.items() if self._known.marks.get(key) != mark),
            vanished_marks=tuple(mark for key, mark in self._known.marks.items() if key not in marks),
            ignored=self._ignored,
            is_tenant_deleted=self._is_tenant_deleted,
            requests=requests,
        )

    def _map(self, read: Callable[[_Item], _Result], items: Collection[_Item]) -> list[_Result]:
        if not items:
            return []
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            return list(pool.map(read, items))
