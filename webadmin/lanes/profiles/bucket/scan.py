"""Find block objects in a bucket, of any writer, and their metadata: in a side file or in the object's footer.

The path only locates the object; everything else is read from the metadata. If a path of our own layout contradicts the
metadata, the object is refused: one of the two is wrong, and a guess could mix tenants or shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engine.core import ulids
from engine.core.errors import BadBlockName, BadObject, LithifyError
from engine.formats.profile_block.container.metadata import read_footer
from engine.formats.profile_block.container.object_names import DEAD_LETTERS, OBJECT, parse_block_key
from engine.formats.profile_block.model import BlockMeta
from engine.storage.model import ObjectInfo, ObjectStore
from webadmin.lanes.profiles.registration import BlockRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBlock:
    """A block object and its key; exactly one of ``registration`` and ``error`` is set."""

    key: str
    registration: BlockRegistration | None = None
    error: LithifyError | None = None


def find_blocks(store: ObjectStore, prefix: str = "") -> Iterator[tuple[str, ObjectInfo]]:
    """Yield (id in the path, object) for every ``…/<ULID>/block.bin``."""
    for info in store.list(prefix):
        parts = info.key.split("/")
        if len(parts) >= 2 and parts[-1] == OBJECT and parts[0] != DEAD_LETTERS and _is_ulid(parts[-2]):
            yield parts[-2], info


def describe_block(
    store: ObjectStore, path_id: str, info: ObjectInfo, side_file: Mapping[str, BlockMeta]
) -> FoundBlock:
    """Return the registration of an object; errors are returned, not raised, so that other objects are processed."""
    try:
        meta = side_file.get(path_id) or _from_footer(store, info)
        meta = replace(meta, size=info.size)
        _check_against_path(info.key, meta)
        return FoundBlock(key=info.key, registration=BlockRegistration.of(meta, object_key=info.key))
    except BadObject as error:
        return FoundBlock(key=info.key, error=error.in_object(info.key))
    except LithifyError as error:
        return FoundBlock(key=info.key, error=error)


def _from_footer(store: ObjectStore, info: ObjectInfo) -> BlockMeta:
    return read_footer(lambda offset, length: store.get_range(info.key, offset, length), info.size)


def _check_against_path(key: str, meta: BlockMeta) -> None:
    try:
        named = parse_block_key(key)
    except BadBlockName:
        return  # foreign layout
    in_metadata = (meta.shard, meta.tenant, meta.compaction_level == 0)
    if in_metadata != (named.shard, named.tenant, named.is_segment):
        reason = f"the key says shard {named.shard}, tenant {named.tenant!r}; metadata: {in_metadata[:2]}"
        raise BadObject("footer", -1, f"{reason}, level {meta.compaction_level}")


def _is_ulid(text: str) -> bool:
    try:
        ulids.parse(text)
    except BadBlockName:
        return False
    return True
