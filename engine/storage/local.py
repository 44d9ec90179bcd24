"""Objects as files in a folder: every write goes to a temporary file, is synced, and then renamed.

1. An object appears under its key only complete: by ``rename`` (``put``, writers) or ``link`` (``create``).
2. When a write returns, file and folder entries are on disk: the file is synced before the rename, the folders after.
3. Unfinished files live in one reserved folder of the store, so listings never see them and a sweep finds them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar
from uuid import uuid4

from engine.storage.conditions import probe_create
from engine.storage.keys import RESERVED_PART, check_folder, check_key, check_prefix
from engine.storage.model import (
    ConditionalCreate,
    InvalidKey,
    InvalidRange,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    ObjectWriter,
    StorageError,
)
from engine.storage.usage import StorageUsage

PUBLISH_ATTEMPTS = 16
"""A deletion may remove a folder that has just become empty under a writer; the writer makes it again, this often."""

_Answer = TypeVar("_Answer")


class LocalStore(ObjectStore):
    """A folder as object store. It is made on the first write; until then it lists as empty."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.url = self.root.as_uri()
        self.usage = StorageUsage()
        self._unfinished = self.root / RESERVED_PART

    def get(self, key: str) -> bytes:
        path = self._path("get", key)
        data = _translated("get", key, path.read_bytes)
        self.usage.record("get", len(data))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        path = self._path("get_range", key)
        data = _translated("get_range", key, lambda: _read_range(path, key, offset, length))
        self.usage.record("get_range", length)
        return data

    def head(self, key: str) -> ObjectInfo:
        path = self._path("head", key)
        self.usage.record("head")
        return _translated("head", key, lambda: _info(path, key))

    def put(self, key: str, data: bytes) -> ObjectInfo:
        writer = LocalWriter(self, key, self._path("put", key), "put")
        with writer:
            writer.write(data)
            return writer.commit()

    def create(self, key: str, data: bytes) -> bool:
        path = self._path("create", key)
        writer = LocalWriter(self, key, path, "create")
        try:
            writer.write(data)
            writer.publish(os.link)
        except FileExistsError:
            return False
        finally:
            writer.abort()
        return True

    def open_writer(self, key: str) -> ObjectWriter:
        return LocalWriter(self, key, self._path("put", key), "put")

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix("list", prefix)
        self.usage.record("list")
        folder = prefix.rpartition("/")[0]
        for key in _walk(self.root, folder + "/" if folder else ""):
            if key.startswith(prefix) and key.encode() > start_after.encode():
                # A key can vanish between the walk and the look at it: then it was not there.
                with contextlib.suppress(ObjectNotFound):
                    yield _translated("list", key, lambda key=key: _info(self.root / key, key))  # type: ignore[misc]

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        check_folder("list", prefix)
        self.usage.record("list")
        for name in _names(self.root / prefix):
            if name.endswith("/") and prefix + name != RESERVED_PART + "/":
                yield prefix + name

    def delete(self, key: str) -> None:
        path = self._path("delete", key)
        self.usage.record("delete")
        with contextlib.suppress(ObjectNotFound):
            _translated("delete", key, path.unlink)
        self._prune(path.parent)

    def probe_conditional_create(self) -> ConditionalCreate:
        return probe_create(self)

    def sweep_unfinished(self, *, before: float) -> int:
        swept = 0
        for entry in _entries(self._unfinished):
            with contextlib.suppress(FileNotFoundError):
                if entry.stat().st_mtime < before:
                    os.unlink(entry.path)
                    swept += 1
        return swept

    def open_unfinished(self) -> tuple[Path, BinaryIO]:
        """Open a temporary file on the file system of the objects (a rename cannot cross file systems)."""
        if not self._unfinished.is_dir():
            _make_folder(self._unfinished)
            _sync_folders(self.root.parent, self.root.parent)
        path = self._unfinished / uuid4().hex
        return path, path.open("xb")

    def _path(self, operation: str, key: str) -> Path:
        return self.root / check_key(operation, key)

    def _prune(self, folder: Path) -> None:
        """Remove folders that have become empty, as a bucket has none."""
        while folder != self.root:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


class LocalWriter(ObjectWriter):
    """Streams into a temporary file and publishes it under its key."""

    def __init__(self, store: LocalStore, key: str, path: Path, operation: str) -> None:
        self._store, self._key, self._path, self._operation = store, key, path, operation
        self._info: ObjectInfo | None = None
        self._temporary, self._file = _translated(operation, key, store.open_unfinished)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._file.closed:
            raise StorageError(self._operation, self._key, "the writer is already committed or aborted")
        _translated(self._operation, self._key, lambda: self._file.write(data))

    def commit(self) -> ObjectInfo:
        if self._info is None:
            try:
                self._info = self.publish(os.replace)
            finally:
                self.abort()
        return self._info

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # What it could not flush is given up anyway.
            self._file.close()
        self._temporary.unlink(missing_ok=True)

    def publish(self, move: Callable[[Path, Path], None]) -> ObjectInfo:
        """Sync the file and move it to its place; FileExistsError if ``move`` does not replace and the key is taken."""
        if self._file.closed:
            raise StorageError(self._operation, self._key, "the writer is already committed or aborted")
        info = _translated(self._operation, self._key, lambda: self._publish(move))
        self._store.usage.record(self._operation, info.size)
        return info

    def _publish(self, move: Callable[[Path, Path], None]) -> ObjectInfo:
        self._file.flush()
        os.fsync(self._file.fileno())
        status = os.fstat(self._file.fileno())
        self._file.close()
        for _ in range(PUBLISH_ATTEMPTS):
            _make_folder(self._path.parent)
            with contextlib.suppress(FileNotFoundError):
                move(self._temporary, self._path)
                _sync_folders(self._path.parent, self._store.root)
                return ObjectInfo(key=self._key, size=status.st_size, modified_at=status.st_mtime)
        raise StorageError(self._operation, self._key, "its folder or the unfinished file vanishes again and again")


def _translated(operation: str, key: str, action: Callable[[], _Answer]) -> _Answer:
    """Run ``action``; errors of the operating system become StorageErrors that name operation and key."""
    try:
        return action()
    except FileExistsError:
        # Only ``create`` can meet it, as its answer; a file where a folder is needed is NotADirectoryError.
        raise
    except (NotADirectoryError, IsADirectoryError) as error:
        if operation in ("put", "create"):
            raise InvalidKey(operation, key, "another key is the beginning of this one, or the reverse") from error
        raise ObjectNotFound(operation, key, "no object has this key") from error
    except FileNotFoundError as error:
        raise ObjectNotFound(operation, key, "no object has this key") from error
    except OSError as error:
        raise StorageError(operation, key, error.strerror or str(error)) from error


def _read_range(path: Path, key: str, offset: int, length: int) -> bytes:
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if offset < 0 or length < 0 or offset + length > size:
            raise InvalidRange("get_range", key, f"{length} bytes at {offset} of an object of {size} bytes")
        data = bytearray()
        while len(data) < length:  # One read answers at most 2 GiB.
            piece = os.pread(file.fileno(), length - len(data), offset + len(data))
            if not piece:
                raise InvalidRange("get_range", key, "the object became shorter while it was read")
            if len(piece) == length:
                return piece
            data += piece
        return bytes(data)


def _info(path: Path, key: str) -> ObjectInfo:
    status = path.stat()
    if not path.is_file():
        raise ObjectNotFound("head", key, "no object has this key")
    return ObjectInfo(key=key, size=status.st_size, modified_at=status.st_mtime)


def _walk(root: Path, prefix: str) -> Iterator[str]:
    """Yield the keys below ``prefix`` (empty or ending in ``/``) in bytewise order of whole keys."""
    for name in _names(root / prefix):
        key = prefix + name
        if key == RESERVED_PART + "/":
            continue
        if key.endswith("/"):
            yield from _walk(root, key)
        else:
            yield key


def _names(folder: Path) -> list[str]:
    """Return the names in a folder, those of folders with a slash after them, in bytewise order."""
    # A folder sorts as its name plus the slash: "a-b" comes before "a/x", because "-" is less than "/".
    encoded = sorted(
        (entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name).encode("utf-8", "surrogateescape")
        for entry in _entries(folder)
    )
    return [name.decode("utf-8", "replace") for name in encoded]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _make_folder(folder: Path) -> None:
    # A deletion may prune the folder, or one above it, at any moment: then the caller tries again.
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.stat(error.filename).st_mode):
                raise NotADirectoryError(f"{error.filename} is a file") from error
    except FileNotFoundError:
        return


def _sync_folders(folder: Path, top: Path) -> None:
    """Sync the entries of ``folder`` and of every folder above it up to ``top``.

    All of them, not only new ones: a folder that is already there may have been made by a writer that has not synced
    it yet. An unchanged folder costs next to nothing.
    """
    for each in (folder, *folder.parents):
        # A folder that is gone again needs no sync.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        if each == top:
            return
