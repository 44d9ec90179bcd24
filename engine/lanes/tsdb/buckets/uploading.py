"""Upload a block's files except ``meta.json``; the block stays invisible until that is written."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from engine.core.checksums import crc32c
from engine.core.errors import MergeCancelled
from engine.formats.prometheus.block_reader import INDEX, TOMBSTONES
from engine.formats.prometheus.tombstones import encode_tombstones
from engine.lanes.tsdb.buckets.block_objects import list_block
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.buckets.publishing import PublishConflict
from engine.lanes.tsdb.jobs import BlockFile
from engine.storage import ObjectStore

PIECE_BYTES = 8 << 20
FILES_AT_ONCE = 4
CHUNKS = "chunks"


def upload_block(
    store: ObjectStore,
    folder: str,
    block: Path,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    files_at_once: int = FILES_AT_ONCE,
) -> tuple[BlockFile, ...]:
    """Upload index and chunks of a block's local folder; return the files with sizes and checksums, ordered by name.

    Idempotent: existing files of the same size are not sent again, since equal ids have equal bytes (a result's id
    includes its sources and fencing token). Tombstones are uploaded if there are any; the empty tombstones file of a
    result is not, as in other systems. Memory is bounded by ``files_at_once`` pieces. Raises MergeCancelled if
    cancelled; uploaded files stay for the next attempt or are cleaned up as a partial upload. Raises PublishConflict if
    the block is published with other files.
    """
    listed = list_block(store, folder, block.name)
    names = [TOMBSTONES] if _has_tombstones(block) else []
    names += [*sorted(f"{CHUNKS}/{path.name}" for path in (block / CHUNKS).iterdir()), INDEX]

    def send(name: str) -> BlockFile:
        path = block / name
        size = path.stat().st_size
        is_uploaded = name in listed and listed[name].size == size
        if META in listed and not is_uploaded:
            raise PublishConflict(f"{folder}{block.name}", f"the block is published with another {name}")
        key = None if is_uploaded else block_key(folder, block.name, name)
        return BlockFile(name=name, size=size, crc32c=_send(store, key, path, is_cancelled))

    with ThreadPoolExecutor(files_at_once) as pool:
        return tuple(sorted(pool.map(send, names), key=lambda file: file.name))


def _has_tombstones(block: Path) -> bool:
    path = block / TOMBSTONES
    return path.is_file() and path.stat().st_size > len(encode_tombstones(()))


def _send(store: ObjectStore, key: str | None, path: Path, is_cancelled: Callable[[], bool]) -> int:
    """Upload a file, or only read it if ``key`` is None; return its CRC32C."""
    checksum = 0
    writer = store.open_writer(key) if key else None
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                if is_cancelled():
                    raise MergeCancelled(f"the upload of {path.name} was cancelled")
                checksum = crc32c(piece, checksum)
                if writer:
                    writer.write(piece)
        if writer:
            writer.commit()
    finally:
        if writer:
            writer.abort()
    return checksum
