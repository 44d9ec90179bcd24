"""The bucket index of a Cortex tenant: one object with its blocks and deletion marks, read by queriers and gateways."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from engine.core.errors import BadObject, LimitExceeded
from engine.formats.prometheus.model import INT64_MAX, INT64_MIN
from engine.lanes.tsdb.buckets.json_objects import TIME_MAX, VERSION, read_json
from engine.lanes.tsdb.buckets.layout import Layout, is_ulid
from engine.lanes.tsdb.buckets.model import FoundBlock, Mark, MarkKind
from engine.protocol.fields import Fields
from engine.storage import ObjectNotFound, ObjectStore

SECTION = "bucket-index.json.gz"
INDEX_BYTES_MAX = 1 << 30
"""Limit of the uncompressed JSON: about four million blocks of one tenant."""
SEGMENTS_NUMBERED = "1b6d"
"""Chunk files are named by six decimal digits and numbered from 1 without gaps."""
STATUS_OK = "Ok"

_CHUNK_FILE = re.compile(r"chunks/([0-9]{6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """A block's entry in the index. Block times are in milliseconds, ``uploaded_at_s`` in Unix seconds, sizes in bytes.

    ``segments_format`` is "" and ``segments`` is 0 if the chunk files are not known to be numbered this way; the
    largest sizes are 0 if unknown.
    """

    ulid: str
    min_time_ms: int
    max_time_ms: int
    segments_format: str
    segments: int
    series_max_size: int
    chunk_max_size: int
    uploaded_at_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketIndex:
    """The index of one tenant: blocks by id, and the times of deletion marks by block id (Unix seconds)."""

    blocks: Mapping[str, IndexEntry] = field(default_factory=dict)
    deletion_times_s: Mapping[str, int] = field(default_factory=dict)
    updated_at_s: int = 0


def entry_of(block: FoundBlock) -> IndexEntry:
    """Return the index entry of a block."""
    numbers = sorted(match[1] for file in block.files if (match := _CHUNK_FILE.fullmatch(file.name)))
    is_numbered = bool(numbers) and numbers == [f"{number:06d}" for number in range(1, len(numbers) + 1)]
    stats = (block.meta.thanos or {}).get("index_stats")
    return IndexEntry(
        ulid=block.ulid,
        min_time_ms=block.meta.min_time_ms,
        max_time_ms=block.meta.max_time_ms,
        segments_format=SEGMENTS_NUMBERED if is_numbered else "",
        segments=len(numbers) if is_numbered else 0,
        series_max_size=_size(stats, "series_max_size"),
        chunk_max_size=_size(stats, "chunk_max_size"),
        uploaded_at_s=int(block.uploaded_at_s),
    )


def build_index(entries: Iterable[IndexEntry], marks: Iterable[Mark], now_s: float) -> BucketIndex:
    """Return the index of these blocks. Marks of other blocks, of other kinds, and unreadable marks are ignored."""
    blocks = {entry.ulid: entry for entry in entries}
    times = {
        mark.ulid: mark.time_s
        for mark in marks
        if mark.kind is MarkKind.DELETION and not mark.fault and mark.ulid in blocks
    }
    return BucketIndex(blocks=blocks, deletion_times_s=times, updated_at_s=int(now_s))


def encode_index(index: BucketIndex) -> bytes:
    """Return the encoded index, readable by Cortex; equal indexes have equal bytes."""
    document = {
        "version": VERSION,
        "blocks": [
            {
                "block_id": entry.ulid,
                "min_time": entry.min_time_ms,
                "max_time": entry.max_time_ms,
                "segments_format": entry.segments_format,
                "segments_num": entry.segments,
                "series_max_size": entry.series_max_size,
                "chunk_max_size": entry.chunk_max_size,
                "uploaded_at": entry.uploaded_at_s,
            }
            for _, entry in sorted(index.blocks.items())
        ],
        "block_deletion_marks": [
            {"block_id": ulid, "deletion_time": time_s} for ulid, time_s in sorted(index.deletion_times_s.items())
        ],
        "updated_at": index.updated_at_s,
    }
    return gzip.compress(json.dumps(document).encode(), mtime=0)


def decode_index(data: bytes) -> BucketIndex:
    """Decode an index. Raises BadObject."""
    return read_json(_decompressed(data), SECTION, INDEX_BYTES_MAX, _index)


def read_index(store: ObjectStore, layout: Layout, folder: str) -> BucketIndex | None:
    """Return a tenant's index, None if it is missing or unreadable: the index is only an optimization."""
    if not layout.has_index:
        return None
    try:
        return decode_index(store.get(layout.index_key(folder)))
    except (ObjectNotFound, BadObject):
        return None


def write_index(store: ObjectStore, layout: Layout, folder: str, index: BucketIndex) -> None:
    """Write a tenant's index and its sync status; delete both if the index is empty, as readers expect. Idempotent."""
    if not layout.has_index:
        return
    if index.blocks:
        store.put(layout.index_key(folder), encode_index(index))
        status = {"syncTime": index.updated_at_s, "version": VERSION, "status": STATUS_OK}
        store.put(layout.sync_status_key(folder), json.dumps(status).encode())
    else:
        store.delete(layout.index_key(folder))
        store.delete(layout.sync_status_key(folder))


def _decompressed(data: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=31)
    try:
        document = decompressor.decompress(data, INDEX_BYTES_MAX)
    except zlib.error as error:
        raise BadObject(SECTION, -1, f"not gzip: {error}") from error
    if decompressor.unconsumed_tail:
        raise LimitExceeded(SECTION, -1, f"more than {INDEX_BYTES_MAX} bytes uncompressed")
    if not decompressor.eof:
        raise BadObject(SECTION, -1, "the gzip stream is truncated")
    return document


def _index(fields: Fields) -> BucketIndex:
    return BucketIndex(
        blocks={_block_id(each): _entry(each) for each in _objects(fields, "blocks")},
        deletion_times_s={
            _block_id(each): each.integer("deletion_time", 0, TIME_MAX)
            for each in _objects(fields, "block_deletion_marks")
        },
        updated_at_s=fields.integer("updated_at", 0, TIME_MAX),
    )


def _objects(fields: Fields, name: str) -> list[Fields]:
    """Return a list of objects; Go writers encode an empty one as null."""
    return [] if fields.values.get(name) is None else list(fields.objects(name, INDEX_BYTES_MAX))


def _entry(fields: Fields) -> IndexEntry:
    return IndexEntry(
        ulid=_block_id(fields),
        min_time_ms=fields.integer("min_time", INT64_MIN, INT64_MAX),
        max_time_ms=fields.integer("max_time", INT64_MIN, INT64_MAX),
        segments_format=fields.text("segments_format", 16, default=""),
        segments=fields.integer("segments_num", 0, INT64_MAX, default=0),
        series_max_size=fields.integer("series_max_size", 0, INT64_MAX, default=0),
        chunk_max_size=fields.integer("chunk_max_size", 0, INT64_MAX, default=0),
        uploaded_at_s=fields.integer("uploaded_at", 0, TIME_MAX, default=0),
    )


def _block_id(fields: Fields) -> str:
    ulid = fields.text("block_id", 26)
    if not is_ulid(ulid):
        raise fields.error("block_id", "a block id is expected")
    return ulid


def _size(stats: object, name: str) -> int:
    size = stats.get(name, 0) if isinstance(stats, dict) else 0
    return size if isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= INT64_MAX else 0
