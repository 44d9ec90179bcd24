"""The steps after a merge was accepted, in this order; each may be repeated, whatever was done of it before.

1. ``publish_meta``: the result becomes visible, beside its sources. Readers drop samples they see twice.
2. ``mark_replaced``: the sources are marked for deletion; refused while a result is not visible.
3. ``engine.lanes.tsdb.buckets.index_update.update_index``: readers of the bucket index see both.

Nothing in between is half visible: at every moment the data is in the sources, in the results, or in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.core.errors import BadObject, LithifyError
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import decode_meta
from engine.lanes.tsdb.buckets.block_objects import list_block
from engine.lanes.tsdb.buckets.layout import META, Layout, block_key
from engine.lanes.tsdb.buckets.marks import write_mark
from engine.lanes.tsdb.buckets.model import Mark, MarkKind
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectNotFound, ObjectStore


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
    """A block lacks files that its result promised, or its ``meta.json``; nothing was changed."""

    code = "incomplete_block"

    def __init__(self, block: str, missing: Sequence[str]) -> None:
        super().__init__(block, tuple(missing))
        self.block = block
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return f"{self.block}: missing or of another size: {', '.join(self.missing)}"


def publish_meta(store: ObjectStore, folder: str, ulid: str, meta: bytes, files: Iterable[BlockFile]) -> bool:
    """Make an uploaded block visible; False if it was already. ``files`` are those its worker reported.

    IncompleteBlock if a file is missing, PublishConflict if another ``meta.json`` is there, BadObject if ``meta`` is
    not this block's.
    """
    place = f"{folder}{ulid}"
    try:
        if (said := decode_meta(meta).ulid) != ulid:
            raise Inconsistent(META, -1, f"it says that it is of block {said}")
    except BadObject as error:
        raise error.in_object(place) from error
    there = list_block(store, folder, ulid)
    missing = [file.name for file in files if file.name not in there or there[file.name].size != file.size]
    if missing:
        raise IncompleteBlock(place, missing)
    if META in there:
        if store.get(block_key(folder, ulid, META)) != meta:
            raise PublishConflict(place, "it is published with another meta.json")
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
    """Mark sources for deletion, now that ``results`` hold their data; return those that were marked here and now.

    IncompleteBlock if a result is not visible. Sources that are gone stay unmarked: a mark would be all there is of
    them. No results means that the merge left no sample.
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
