"""Download whole blocks into local folders, several pieces at a time; sizes and checksums are verified."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from engine.core.checksums import crc32c
from engine.core.errors import BadObject, BadReference, ChecksumMismatch, MergeCancelled, Truncated
from engine.formats.prometheus.errors import Inconsistent
from engine.lanes.tsdb.buckets.block_objects import BLOCK_FILE, list_block
from engine.lanes.tsdb.buckets.layout import META, block_key
from engine.lanes.tsdb.jobs import TsdbSource
from engine.storage import InvalidRange, ObjectNotFound, ObjectStore

PIECE_BYTES = 8 << 20
PIECES_AT_ONCE = 8
UNFINISHED = ".being-fetched"


@dataclass(frozen=True, slots=True)
class _Piece:
    ulid: str
    file: str
    offset: int
    length: int


def fetch_blocks(
    store: ObjectStore,
    folder: str,
    sources: Sequence[TsdbSource],
    parent: Path,
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    pieces_at_once: int = PIECES_AT_ONCE,
) -> list[Path]:
    """Download blocks to ``parent/<ulid>`` and return these folders in the order of ``sources``.

    A block gets its folder when it is complete; an existing folder is kept. Memory is bounded by ``pieces_at_once``
    pieces of 8 MiB. Raises Truncated, Inconsistent or ChecksumMismatch that name block and file if a file differs from
    its source, MergeCancelled if cancelled; incomplete blocks are removed.
    """
    parent.mkdir(parents=True, exist_ok=True)
    missing = [source for source in sources if not (parent / source.id).is_dir()]
    fetch = _Fetch(store, folder, parent, is_cancelled)
    try:
        with ThreadPoolExecutor(pieces_at_once) as pool:
            list(pool.map(fetch.prepare, missing))
            list(pool.map(fetch.piece, [piece for source in missing for piece in _pieces(source)]))
            list(pool.map(fetch.finish, missing))
    finally:
        for source in missing:
            shutil.rmtree(parent / f"{source.id}{UNFINISHED}", ignore_errors=True)
    return [parent / source.id for source in sources]


class _Fetch:
    def __init__(self, store: ObjectStore, folder: str, parent: Path, is_cancelled: Callable[[], bool]) -> None:
        self._store, self._folder, self._parent, self._is_cancelled = store, folder, parent, is_cancelled

    def prepare(self, source: TsdbSource) -> None:
        """Compare a block's listing with its source, and create its files with their sizes."""
        listed = list_block(self._store, self._folder, source.id)
        target = self._path(source.id)
        shutil.rmtree(target, ignore_errors=True)
        (target / "chunks").mkdir(parents=True)
        for file in source.files:
            if not BLOCK_FILE.fullmatch(file.name):
                raise self._in_block(BadReference(file.name, -1, "not a name of a block's file"), source.id)
            if file.name not in listed:
                raise self._in_block(Truncated(file.name, -1, "the block has no such file"), source.id)
            if listed[file.name].size != file.size:
                reason = f"{listed[file.name].size} bytes, expected {file.size}"
                raise self._in_block(Inconsistent(file.name, -1, reason), source.id)
            with (target / file.name).open("xb") as created:
                created.truncate(file.size)

    def piece(self, piece: _Piece) -> None:
        """Download one piece of a file."""
        if self._is_cancelled():
            raise MergeCancelled(f"the download of {piece.ulid} was cancelled")
        key = block_key(self._folder, piece.ulid, piece.file)
        try:
            data = self._store.get_range(key, piece.offset, piece.length)
        except (ObjectNotFound, InvalidRange) as error:
            raise self._in_block(Truncated(piece.file, piece.offset, error.reason), piece.ulid) from error
        with (self._path(piece.ulid) / piece.file).open("r+b") as file:
            file.seek(piece.offset)
            file.write(data)

    def finish(self, source: TsdbSource) -> None:
        """Verify known checksums, write ``meta.json``, and rename the folder to the block's name."""
        target = self._path(source.id)
        for file in source.files:
            if file.crc32c is not None and _checksum(target / file.name) != file.crc32c:
                raise self._in_block(
                    ChecksumMismatch(file.name, -1, "the CRC32C differs from the reported one"), source.id
                )
        (target / META).write_bytes(source.meta)
        os.rename(target, self._parent / source.id)

    def _path(self, ulid: str) -> Path:
        return self._parent / f"{ulid}{UNFINISHED}"

    def _in_block(self, error: BadObject, ulid: str) -> BadObject:
        return error.in_object(f"{self._folder}{ulid}")


def _pieces(source: TsdbSource) -> Iterator[_Piece]:
    for file in source.files:
        for offset in range(0, file.size, PIECE_BYTES):
            yield _Piece(source.id, file.name, offset, min(PIECE_BYTES, file.size - offset))


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            checksum = crc32c(piece, checksum)
    return checksum
