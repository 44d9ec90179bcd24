"""Removes blocks that were marked long enough ago, and what unfinished uploads left.

``meta.json`` goes first, so that nobody opens a block that is going; the marks go last, so that a deletion which was
interrupted is known as one.
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
    """Tell whether a mark is old enough for its block to go; only a readable deletion mark ever is."""
    return mark.kind is MarkKind.DELETION and not mark.fault and mark.time_s + delay_s <= now_s


def delete_marked_block(
    store: ObjectStore, layout: Layout, folder: str, ulid: str, *, now_s: float, delay_s: float
) -> bool:
    """Delete a block whose deletion mark is old enough; False, and nothing done, if it is not or cannot be read.

    The mark is read again: somebody may have taken it back. Safe to repeat after an interruption.
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
    """Delete what there is of a block without ``meta.json``; False, and nothing done, if it has to stay.

    It goes at once if it has a deletion mark, after the time of a visit if a visit marker is all there is, and
    otherwise ``delay_s`` after anything was last written to it. The block is looked at again: it may be complete now.
    """
    objects = list_block(store, folder, ulid)
    if not objects or META in objects:
        return False
    if not _is_marked(store, layout, folder, ulid):
        patience_s = VISIT_TIMEOUT_S if objects.keys() == {VISIT_MARK} else delay_s
        if max(info.modified_at for info in objects.values()) + patience_s > now_s:
            return False
    _delete(store, layout, folder, ulid, objects)
    return True


def _is_marked(store: ObjectStore, layout: Layout, folder: str, ulid: str) -> bool:
    try:
        return read_mark(store, layout, folder, ulid, MarkKind.DELETION) is not None
    except BadObject:
        return False


def _delete(store: ObjectStore, layout: Layout, folder: str, ulid: str, objects: Objects) -> None:
    """Delete all of a block in the order that keeps an interruption visible as one."""
    last = mark_name(MarkKind.DELETION)
    if META in objects:
        store.delete(block_key(folder, ulid, META))
    for name in sorted(objects.keys() - {META, last}):
        store.delete(block_key(folder, ulid, name))
    remove_mark(store, layout, folder, ulid, MarkKind.NO_COMPACT)
    remove_mark(store, layout, folder, ulid, MarkKind.DELETION)
