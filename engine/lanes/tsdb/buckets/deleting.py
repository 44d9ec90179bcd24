"""Delete blocks whose deletion mark is old enough, and partial uploads.

``meta.json`` is deleted first, so that no reader opens a block that is being deleted. Marks are deleted last, so that
an interrupted deletion is recognized and finished.
"""

from __future__ import annotations

from engine.core.errors import BadObject
from engine.lanes.tsdb.buckets.block_objects import Objects, list_block
from engine.lanes.tsdb.buckets.layout import META, Layout, block_key, mark_name
from engine.lanes.tsdb.buckets.marks import read_mark, remove_mark
from engine.lanes.tsdb.buckets.model import Mark, MarkKind
from engine.lanes.tsdb.buckets.visits import VISIT_MARK, VISIT_TIMEOUT_S
from engine.storage import ObjectStore


def is_due(mark: Mark, *, now_s: float, delay_s: float) -> bool:
    """Return whether a mark allows the deletion of its block: a readable deletion mark, ``delay_s`` seconds old."""
    return mark.kind is MarkKind.DELETION and not mark.fault and mark.time_s + delay_s <= now_s


def delete_marked_block(
    store: ObjectStore, layout: Layout, folder: str, ulid: str, *, now_s: float, delay_s: float
) -> bool:
    """Delete a block if its deletion mark is readable and old enough; return whether it was deleted.

    The mark is read again, since it may have been removed. Idempotent after an interruption.
    """
    try:
        mark = read_mark(store, layout, folder, ulid, MarkKind.DELETION)
    except BadObject:
        return False
    if mark is None or not is_due(mark, now_s=now_s, delay_s=delay_s):
        return False
    _delete(store, layout, folder, ulid, list_block(store, folder, ulid))
    return True


def delete_partial_upload(
    store: ObjectStore, layout: Layout, folder: str, ulid: str, *, now_s: float, delay_s: float
) -> bool:
    """Delete a block without ``meta.json``; return whether it was deleted.

    It is deleted at once if it has a deletion mark, after ``VISIT_TIMEOUT_S`` if a visit marker is its only object, and
    otherwise ``delay_s`` after its last write. The block is listed again, since it may be complete by now.
    """
    objects = list_block(store, folder, ulid)
    if not objects or META in objects:
        return False
    if not _is_marked(store, layout, folder, ulid):
        wait_s = VISIT_TIMEOUT_S if objects.keys() == {VISIT_MARK} else delay_s
        if max(info.modified_at for info in objects.values()) + wait_s > now_s:
            return False
    _delete(store, layout, folder, ulid, objects)
    return True


def _is_marked(store: ObjectStore, layout: Layout, folder: str, ulid: str) -> bool:
    try:
        return read_mark(store, layout, folder, ulid, MarkKind.DELETION) is not None
    except BadObject:
        return False


def _delete(store: ObjectStore, layout: Layout, folder: str, ulid: str, objects: Objects) -> None:
    """Delete a block's objects in the order that keeps an interrupted deletion recognizable."""
    last = mark_name(MarkKind.DELETION)
    if META in objects:
        store.delete(block_key(folder, ulid, META))
    for name in sorted(objects.keys() - {META, last}):
        store.delete(block_key(folder, ulid, name))
    remove_mark(store, layout, folder, ulid, MarkKind.NO_COMPACT)
    remove_mark(store, layout, folder, ulid, MarkKind.DELETION)
