"""List the objects of blocks, and read and check a block's ``meta.json``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import asdict

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.block_reader import INDEX
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import META_BYTES_MAX, SECTION, BlockMeta, decode_meta
from engine.lanes.tsdb.buckets.labels import resolution_ms
from engine.lanes.tsdb.buckets.layout import META, Layout, block_key, is_ulid
from engine.lanes.tsdb.buckets.model import FoundBlock, PartialUpload
from engine.lanes.tsdb.buckets.sections import origin
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectInfo, ObjectStore

LAST_ULID_START = "7"
"""ULIDs begin with 0 to 7 and therefore precede all names that begin with a letter in a listing."""

Objects = Mapping[str, ObjectInfo]
"""A block's objects by name relative to the block, marks included."""

BLOCK_FILE = re.compile(r"index|tombstones|chunks/[0-9]{6}")
"""Names of a block's files, except ``meta.json``."""


COUNT_MAX = 1 << 40
LEVEL_MAX = 1 << 15
TIME_MAX_MS = 1 << 53
"""Limit of block times before and after 1970, and of the length of an interval."""
RESOLUTION_MAX_MS = 1 << 40
HINTS_MAX = 100
HINT_LENGTH_MAX = 200


def list_block(store: ObjectStore, folder: str, ulid: str) -> Objects:
    """Return the objects of a block; one request per thousand objects."""
    prefix = block_key(folder, ulid, "")
    return {info.key.removeprefix(prefix): info for info in store.list(prefix)}


def list_all_blocks(store: ObjectStore, folder: str, settled: Set[str] = frozenset()) -> dict[str, Objects]:
    """Return the objects of every block of a folder; one request per thousand objects.

    Keys after the blocks are not listed. For ``settled`` blocks only ``meta.json`` and marks are kept, so that memory
    is bounded by the new blocks.
    """
    found: dict[str, dict[str, ObjectInfo]] = {}
    for info in store.list(folder):
        ulid, slash, name = info.key.removeprefix(folder).partition("/")
        if ulid[:1] > LAST_ULID_START:
            break
        if slash and is_ulid(ulid):
            objects = found.setdefault(ulid, {})
            if ulid not in settled or name.endswith(".json"):
                objects[name] = info
    return dict(found)


def block_files(objects: Objects) -> tuple[BlockFile, ...]:
    """Return a block's files except ``meta.json``, ordered by name; other objects are ignored."""
    return tuple(
        BlockFile(name=name, size=info.size) for name, info in sorted(objects.items()) if BLOCK_FILE.fullmatch(name)
    )


def partial_upload(folder: str, ulid: str, objects: Objects, *, has_deletion_mark: bool) -> PartialUpload:
    """Describe a block without ``meta.json``."""
    return PartialUpload(
        folder=folder,
        ulid=ulid,
        objects=len(objects),
        size=sum(info.size for info in objects.values()),
        newest_at_s=max(info.modified_at for info in objects.values()),
        has_deletion_mark=has_deletion_mark,
    )


def read_block(store: ObjectStore, layout: Layout, folder: str, ulid: str, objects: Objects) -> FoundBlock:
    """Read a block's ``meta.json`` and compare it with the listed objects.

    Raises a BadObject that names block and file, and ObjectNotFound if ``meta.json`` was deleted meanwhile.
    """
    try:
        if objects[META].size > META_BYTES_MAX:
            raise LimitExceeded(META, -1, f"{objects[META].size} bytes exceed the limit of {META_BYTES_MAX}")
        data = store.get(block_key(folder, ulid, META))
        meta = decode_meta(data)
        if meta.ulid != ulid:
            raise Inconsistent(META, -1, f"its ULID is {meta.ulid}, not the block's")
        files = block_files(objects)
        _check_files(meta, {file.name: file.size for file in files})
        check_bounds(meta)  # Blocks with an invalid partition or out-of-range numbers must not be planned.
        return FoundBlock(
            folder=folder,
            tenant=layout.tenant(folder, meta),
            ulid=ulid,
            group_key=layout.group_key(meta),
            meta=meta,
            meta_bytes=data,
            files=files,
            uploaded_at_s=objects[META].modified_at,
        )
    except BadObject as error:
        raise error.in_object(f"{folder}{ulid}") from error


def _check_files(meta: BlockMeta, sizes: Mapping[str, int]) -> None:
    """Check that the index exists and that the files listed in ``meta.json`` have the listed sizes."""
    if INDEX not in sizes:
        raise Truncated(INDEX, -1, "the block has no such file")
    listed = (meta.thanos or {}).get("files")
    for file in listed if isinstance(listed, list) else ():
        name, size = (file.get("rel_path"), file.get("size_bytes")) if isinstance(file, dict) else (None, None)
        if not isinstance(name, str) or not BLOCK_FILE.fullmatch(name) or not isinstance(size, int):
            continue
        if name not in sizes:
            raise Truncated(name, -1, "meta.json lists the file, and the block lacks it")
        if sizes[name] != size:
            raise Inconsistent(name, -1, f"{sizes[name]} bytes, but meta.json states {size}")


def check_bounds(meta: BlockMeta) -> None:
    """Check the fields of a block's metadata. Raises LimitExceeded, and BadObject like ``origin``."""
    for name, count in asdict(meta.stats).items():
        _check(f"stats: {name}", count, COUNT_MAX)
    _check("compaction.level", meta.compaction.level, LEVEL_MAX)
    _check("minTime", abs(meta.min_time_ms), TIME_MAX_MS)
    _check("maxTime", abs(meta.max_time_ms), TIME_MAX_MS)
    _check("thanos.extensions: time_range", origin(meta).range_ms, TIME_MAX_MS)
    _check("thanos.downsample.resolution", resolution_ms(meta), RESOLUTION_MAX_MS)
    _check("the number of hints", len(meta.compaction.hints), HINTS_MAX)
    for hint in meta.compaction.hints:
        _check("the length of a hint", len(hint), HINT_LENGTH_MAX)
        if "\0" in hint:
            raise LimitExceeded(SECTION, -1, "a hint contains a NUL byte")


def _check(what: str, number: int, most: int) -> None:
    if number > most:
        raise LimitExceeded(SECTION, -1, f"{what} exceeds {most}")
