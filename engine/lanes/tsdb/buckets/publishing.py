"""The steps after a merge was accepted, in this order. Each is idempotent, also after a partial execution.

1. ``publish_meta``: the result becomes visible beside its sources. Readers deduplicate samples.
2. ``mark_replaced``: the sources are marked for deletion; refused while a result is not visible.
3. ``update_index``: readers of the bucket index see both.

At every moment all data is visible in the sources, the results, or both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.errors import BadObject, LithifyError
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import decode_meta
from engine.lanes.tsdb.buckets.block_objects import list_block
from engine.lanes.tsdb.buckets.bucket_index import BucketIndex, build_index, entry_of, read_index, write_index
from engine.lanes.tsdb.buckets.layout import META, Layout, block_key
from engine.lanes.tsdb.buckets.marks import write_mark
from engine.lanes.tsdb.buckets.model import KnownFolder, Mark, MarkKind
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectNotFound, ObjectStore, StorageError


class PublishConflict(LithifyError):
    """A block of this id is published with other content; nothing was changed. ``block`` is its place."""

    code = "publish_conflict"

    def __init__(self, block: str, reason: str) -> None:
        super().__init__(block, reason)
        self.block = block
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.block}: {self.reason}"


class IncompleteBlock(LithifyError):
    """A block lacks files that its result reported, or its ``meta.json``; nothing was changed."""

    code = "incomplete_block"

    def __init__(self, block: str, missing: Sequence[str]) -> None:
        super().__init__(block, tuple(missing))
        self.block = block
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return f"{self.block}: files are missing or have another size: {', '.join(self.missing)}"


def publish_meta(store: ObjectStore, folder: str, ulid: str, meta: bytes, files: Iterable[BlockFile]) -> bool:
    """Make an uploaded block visible; return False if it was visible already. ``files`` are those the worker reported.

    Raises IncompleteBlock if a file is missing, PublishConflict if another ``meta.json`` exists, BadObject if ``meta``
    belongs to another block.
    """
    place = f"{folder}{ulid}"
    try:
        if (found := decode_meta(meta).ulid) != ulid:
            raise Inconsistent(META, -1, f"its ULID is {found}, not the block's")
    except BadObject as error:
        raise error.in_object(place) from error
    listed = list_block(store, folder, ulid)
    missing = [file.name for file in files if file.name not in listed or listed[file.name].size != file.size]
    if missing:
        raise IncompleteBlock(place, missing)
    if META in listed:
        if store.get(block_key(folder, ulid, META)) != meta:
            raise PublishConflict(place, "the block is published with another meta.json")
        return False
    store.put(block_key(folder, ulid, META), meta)
    return True


def mark_replaced(
    store: ObjectStore,
    layout: Layout,
    folder: str,
    sources: Sequence[str],
    results: Sequence[str],
    *,
    at_s: int,
    details: str = "",
) -> tuple[str, ...]:
    """Mark sources for deletion once ``results`` hold their data; return those marked by this call.

    Raises IncompleteBlock if a result is not visible. Deleted sources are not marked, since the mark would be their
    only object. ``results`` is empty if the merge left no sample.
    """
    for ulid in results:
        if not _is_visible(store, folder, ulid):
            raise IncompleteBlock(f"{folder}{ulid}", (META,))
    marked = []
    for ulid in sources:
        if ulid in results or not _is_visible(store, folder, ulid):
            continue
        mark = Mark(ulid=ulid, kind=MarkKind.DELETION, time_s=at_s, details=details)
        if write_mark(store, layout, folder, mark):
            marked.append(ulid)
    return tuple(marked)


def _is_visible(store: ObjectStore, folder: str, ulid: str) -> bool:
    try:
        store.head(block_key(folder, ulid, META))
    except ObjectNotFound:
        return False
    return True


def update_index(store: ObjectStore, layout: Layout, folder: str, *, now_s: float) -> BucketIndex | None:
    """Rewrite a tenant's bucket index and return it; None for layouts without one.

    Entries of the old index are reused, other blocks are read. Blocks marked for deletion stay in the index, with their
    mark, until they are deleted. Idempotent; with concurrent writers the last one wins. Raises StorageError, and writes
    nothing, if a block cannot be read: an index without it would hide its data.
    """
    if not layout.has_index:
        return None
    old = read_index(store, layout, folder) or BucketIndex()
    known = KnownFolder(complete=frozenset(old.blocks))
    scan = scan_folder(store, layout, folder, known, kinds=(MarkKind.DELETION,), index=old)
    for bad in scan.bad:
        if isinstance(bad.error, StorageError):
            raise bad.error
    entries = {ulid: entry for ulid, entry in old.blocks.items() if ulid in scan.known.complete}
    entries |= {block.ulid: entry_of(block) for block in (*scan.appeared, *scan.completed)}
    index = build_index(entries.values(), scan.known.marks.values(), now_s)
    write_index(store, layout, folder, index)
    return index
