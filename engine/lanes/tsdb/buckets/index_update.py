"""Brings the bucket index of a tenant up to date with what is in the bucket."""

from __future__ import annotations

from engine.lanes.tsdb.buckets.bucket_index import BucketIndex, build_index, entry_of, read_index, write_index
from engine.lanes.tsdb.buckets.layout import Layout
from engine.lanes.tsdb.buckets.model import KnownFolder, MarkKind
from engine.lanes.tsdb.buckets.scan import scan_folder
from engine.storage import ObjectStore, StorageError


def update_index(store: ObjectStore, layout: Layout, folder: str, *, now_s: float) -> BucketIndex | None:
    """Write a tenant's bucket index anew and return it; None where the layout has none.

    Blocks that the old index tells are taken from there, the others are read; blocks that are marked for deletion stay
    in it, with their mark, until they are gone. Safe to repeat, and to run beside another writer: the last one wins.
    StorageError, and nothing written, if the store does not give a block: without it the index would hide its data.
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
