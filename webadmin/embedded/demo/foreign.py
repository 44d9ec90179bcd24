"""Copy objects of another program into the demonstration's store; their folder is only read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from engine.core.errors import LithifyError
from engine.storage import ObjectInfo, ObjectStore, open_store

METADATA_FILE = "segments-meta.json"
BLOCK_SUFFIX = "block.bin"
COPY_BYTES = 8 << 20


class NothingToCompact(LithifyError):
    """There is nothing to compact: no object named block.bin, none that can be registered, or none with profiles."""

    code = "nothing_to_compact"


def find_metadata_file(bucket: str, given: str | None) -> Path | None:
    """Return the metadata file of segments without a footer: the given one, or the one in the folder."""
    if given:
        return Path(given).resolve()
    beside = Path(bucket) / METADATA_FILE
    return beside.resolve() if beside.is_file() else None


def copy_blocks(bucket: str, target: ObjectStore, on_copied: Callable[[int, int], None]) -> int:
    """Copy every block object with its key; return the bytes copied.

    ``on_copied`` is called with the objects done and their count. Raises NothingToCompact, or StorageError naming the
    object.
    """
    source = open_store(bucket if "://" in bucket else str(Path(bucket).resolve()))
    blocks = [info for info in source.list() if info.key.rsplit("/", 1)[-1] == BLOCK_SUFFIX]
    if not blocks:
        raise NothingToCompact(f"{bucket} has no objects called */{BLOCK_SUFFIX}")
    for number, info in enumerate(blocks, start=1):
        _copy(source, target, info)
        on_copied(number, len(blocks))
    return sum(info.size for info in blocks)


def _copy(source: ObjectStore, target: ObjectStore, info: ObjectInfo) -> None:
    with target.open_writer(info.key) as writer:
        for offset in range(0, info.size, COPY_BYTES):
            writer.write(source.get_range(info.key, offset, min(COPY_BYTES, info.size - offset)))
