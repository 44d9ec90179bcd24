"""What a block has in a bucket, as a listing tells it, and whether its ``meta.json`` agrees."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from engine.core.errors import BadObject, LimitExceeded, Truncated
from engine.formats.prometheus.block_reader import INDEX
from engine.formats.prometheus.errors import Inconsistent
from engine.formats.prometheus.meta import META_BYTES_MAX, BlockMeta, decode_meta
from engine.lanes.tsdb.buckets.bounds import check_bounds
from engine.lanes.tsdb.buckets.layout import META, Layout, block_key, is_ulid
from engine.lanes.tsdb.buckets.model import FoundBlock, PartialUpload
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectInfo, ObjectStore

LAST_ULID_START = "7"
"""ULIDs begin with 0 to 7, so in a listing they come before every name that begins with a letter."""

Objects = Mapping[str, ObjectInfo]
"""What a block has, by name inside it, marks and all."""

BLOCK_FILE = re.compile(r"index|tombstones|chunks/[0-9]{6}")
"""Names of a block's own files but ``meta.json``."""


def list_block(store: ObjectStore, folder: str, ulid: str) -> Objects:
    """Return what a block has in the bucket; one request per thousand objects."""
    prefix = block_key(folder, ulid, "")
    return {info.key.removeprefix(prefix): info for info in store.list(prefix)}


def list_all_blocks(store: ObjectStore, folder: str, settled: Set[str] = frozenset()) -> dict[str, Objects]:
    """Return what every block of a folder has; one request per thousand objects, none for what lies beyond blocks.

    Of ``settled`` blocks only ``meta.json`` and marks are kept, so that memory is bounded by what is new.
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
    """Return a block's own files but ``meta.json``, by name; what else lies there is not the block's."""
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
    """Read a block's ``meta.json`` and hold it against what there is; BadObject names block and file.

    ObjectNotFound if ``meta.json`` is gone meanwhile.
    """
    try:
        if objects[META].size > META_BYTES_MAX:
            raise LimitExceeded(META, -1, f"{objects[META].size} bytes, at most {META_BYTES_MAX} are read")
        data = store.get(block_key(folder, ulid, META))
        meta = decode_meta(data)
        if meta.ulid != ulid:
            raise Inconsistent(META, -1, f"it says that it is of block {meta.ulid}")
        files = block_files(objects)
        _check_files(meta, {file.name: file.size for file in files})
        check_bounds(meta)  # A block that lies about its part, or beyond all reason, must not be planned.
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
    """Compare the files that there are with those that must be and those that ``meta.json`` promises."""
    if INDEX not in sizes:
        raise Truncated(INDEX, -1, "the block has no such file")
    listed = (meta.thanos or {}).get("files")
    for file in listed if isinstance(listed, list) else ():
        name, size = (file.get("rel_path"), file.get("size_bytes")) if isinstance(file, dict) else (None, None)
        if not isinstance(name, str) or not BLOCK_FILE.fullmatch(name) or not isinstance(size, int):
            continue
        if name not in sizes:
            raise Truncated(name, -1, "meta.json lists it, and the block has no such file")
        if sizes[name] != size:
            raise Inconsistent(name, -1, f"{sizes[name]} bytes, meta.json says {size}")
