"""Read, write and remove deletion and no-compact marks of blocks."""

from __future__ import annotations

import json

from engine.core.errors import BadObject
from engine.lanes.tsdb.buckets.json_objects import TEXT_MAX, TIME_MAX, VERSION, read_json
from engine.lanes.tsdb.buckets.layout import Layout, mark_name
from engine.lanes.tsdb.buckets.model import Mark, MarkKind
from engine.protocol.fields import Fields
from engine.storage import ObjectNotFound, ObjectStore

MARK_BYTES_MAX = 1 << 20
TIME_FIELDS = {MarkKind.DELETION: "deletion_time", MarkKind.NO_COMPACT: "no_compact_time"}

REASON_MANUAL = "manual"
REASON_INDEX_SIZE = "index-size-exceeding"
REASON_OUT_OF_ORDER = "block-index-out-of-order-chunk"
REASON_DOWNSAMPLE = "downsample-vertical-compaction"


def encode_mark(mark: Mark) -> bytes:
    """Return the encoded mark, readable by Cortex and Thanos."""
    document: dict[str, object] = {"id": mark.ulid, "version": VERSION}
    if mark.details:
        document["details"] = mark.details
    document[TIME_FIELDS[mark.kind]] = mark.time_s
    if mark.kind is MarkKind.NO_COMPACT:
        document["reason"] = mark.reason
    return json.dumps(document).encode() + b"\n"


def decode_mark(data: bytes, kind: MarkKind, ulid: str) -> Mark:
    """Decode the mark of a block. Raises BadObject if it is invalid or belongs to another block."""

    def read(fields: Fields) -> Mark:
        if (marked := fields.text("id", TEXT_MAX)) != ulid:
            raise fields.error("id", f"the mark is of block {marked!r}, not {ulid!r}")
        return Mark(
            ulid=ulid,
            kind=kind,
            time_s=fields.integer(TIME_FIELDS[kind], 0, TIME_MAX),
            reason=fields.text("reason", TEXT_MAX, default="") if kind is MarkKind.NO_COMPACT else "",
            details=fields.text("details", TEXT_MAX, default=""),
        )

    return read_json(data, mark_name(kind), MARK_BYTES_MAX, read)


def read_mark(store: ObjectStore, layout: Layout, folder: str, ulid: str, kind: MarkKind) -> Mark | None:
    """Return the current mark of a block, None if it has none. Raises BadObject if it cannot be read."""
    for key in reversed(layout.mark_keys(folder, ulid, kind)):
        try:
            return decode_mark(store.get(key), kind, ulid)
        except ObjectNotFound:
            continue
        except BadObject as error:
            raise error.in_object(key) from error
    return None


def write_mark(store: ObjectStore, layout: Layout, folder: str, mark: Mark) -> bool:
    """Mark a block unless it is marked already; return whether the mark was written. Idempotent.

    The copy in the block is written first: once the copy among all marks exists, which readers use, the mark is
    complete.
    """
    keys = layout.mark_keys(folder, mark.ulid, mark.kind)
    try:
        decode_mark(store.get(keys[-1]), mark.kind, mark.ulid)
    except (ObjectNotFound, BadObject):
        data = encode_mark(mark)
        for key in keys:
            store.put(key, data)
        return True
    return False


def remove_mark(store: ObjectStore, layout: Layout, folder: str, ulid: str, kind: MarkKind) -> None:
    """Remove all copies of a mark; missing ones are ignored. Idempotent."""
    for key in layout.mark_keys(folder, ulid, kind):
        store.delete(key)
