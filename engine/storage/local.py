"""Object store in a local folder: each object is written to a temporary file, synced, and then renamed.

1. An object becomes visible atomically: by ``rename`` (``put``, writers) or ``link`` (``create``).
2. Writes are durable on return: the file is synced before the rename, the folders after it.
3. Unfinished files are in one reserved folder: listings exclude it, and ``sweep_unfinished`` empties it.
4. Symbolic links are not followed, neither in the path of the store's folder nor in a key (decision 0055).
5. Only regular files are objects; opening never blocks (on a FIFO it would wait for a writer).
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from engine.storage.keys import KEY_SIZE_MAX, RESERVED_PART, check_folder, check_key, check_prefix
from engine.storage.model import (
    InvalidKey,
    InvalidRange,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    ObjectWriter,
    StorageError,
)
from engine.storage.nofollow import (
    NO_DESCRIPTOR,
    READ,
    READ_FILE,
    LinkFound,
    open_path,
    opened_folder,
    opened_folders,
)
from engine.storage.usage import StorageUsage

PUBLISH_ATTEMPTS = 16
"""A concurrent deletion may remove the empty folder that a writer needs; the writer then creates it again."""
STATUS_BATCH = 1000
"""Names of a listing whose sizes and times are read while their folder is open."""

CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalStore(ObjectStore):
    """An object store in a folder, which is created by the first write; a missing folder is an empty store.

    Every operation raises StorageError if a component of the folder's path is a symbolic link.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(root))
        self.url = self.root.as_uri()
        self.usage = StorageUsage()
        self.parts = self.root.parts[1:]
        self._unfinished = (*self.parts, RESERVED_PART)

    def get(self, key: str) -> bytes:
        with (
            self.translated("get", key),
            self._opened_file("get", key) as descriptor,
            open(descriptor, "rb", buffering=0, closefd=False) as file,
        ):
            data = file.read()
        self.usage.record("get", len(data))
        return data

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with self.translated("get_range", key), self._opened_file("get_range", key) as descriptor:
            data = _read_range(descriptor, key, offset, length)
        self.usage.record("get_range", length)
        return data

    def head(self, key: str) -> ObjectInfo:
        self.usage.record("head")
        with self.translated("head", key), self._opened_parent("head", key) as (folder, name):
            return _info("head", key, name, folder)

    def put(self, key: str, data: bytes) -> ObjectInfo:
        with self.open_writer(key) as writer:
            writer.write(data)
            return writer.commit()

    def create(self, key: str, data: bytes) -> bool:
        writer = LocalWriter(self, key, "create")
        try:
            writer.write(data)
            writer.publish(replaces=False)
        except FileExistsError:
            return False
        finally:
            writer.abort()
        return True

    def open_writer(self, key: str) -> ObjectWriter:
        return LocalWriter(self, key, "put")

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[ObjectInfo]:
        check_prefix("list", prefix)
        self.usage.record("list")
        folder = prefix.rpartition("/")[0]
        return self._walk(folder + "/" if folder else "", prefix, start_after)

    def list_folders(self, prefix: str = "") -> Iterator[str]:
        check_folder("list", prefix)
        self.usage.record("list")
        for name in self._names(prefix):
            if name.endswith("/") and prefix + name != RESERVED_PART + "/":
                yield prefix + name

    def delete(self, key: str) -> None:
        self.usage.record("delete")
        with (
            contextlib.suppress(ObjectNotFound),
            self.translated("delete", key),
            self._opened_parent("delete", key) as (folder, name),
        ):
            _info("delete", key, name, folder)
            os.unlink(name, dir_fd=folder)
        self._prune(key.split("/")[:-1])

    def sweep_unfinished(self, *, before: float) -> int:
        swept = 0
        with (
            contextlib.suppress(FileNotFoundError),
            self.translated("list", RESERVED_PART, passed_on=(FileNotFoundError,)),
            opened_folder(self._unfinished, READ) as folder,
        ):
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISREG(found.st_mode) and found.st_mtime < before:
                        os.unlink(name, dir_fd=folder)
                        swept += 1
        return swept

    def create_unfinished(self, operation: str, key: str) -> tuple[str, BinaryIO]:
        """Create a temporary file; return its name and the open file. It is on the file system of the objects."""
        name = uuid4().hex
        with self.translated(operation, key):
            with contextlib.suppress(FileNotFoundError), opened_folder(self._unfinished) as folder:
                return name, _created(name, folder)
            # Three folders: the parent of the store, the store, its folder of unfinished files. All may be new.
            with opened_folders(self._unfinished, 3, READ, creates_missing=True) as folders:
                os.fsync(folders[0])
                return name, _created(name, folders[-1])

    def remove_unfinished(self, name: str) -> None:
        """Remove a temporary file if it exists."""
        with contextlib.suppress(OSError), opened_folder(self._unfinished) as folder:
            os.unlink(name, dir_fd=folder)

    def publish(self, operation: str, key: str, unfinished: str, *, replaces: bool) -> None:
        """Rename a temporary file to its key; raise FileExistsError if the key exists and ``replaces`` is false.

        All folders up to that of the store are synced, not only new ones: another writer may have created one and not
        synced it yet. Syncing an unchanged folder costs almost nothing.
        """
        *inner, name = key.split("/")
        for _ in range(PUBLISH_ATTEMPTS):
            with (
                contextlib.suppress(FileNotFoundError),
                self.translated(operation, key, passed_on=(FileNotFoundError, FileExistsError)),
                opened_folders((*self.parts, *inner), 1 + len(inner), READ, creates_missing=True) as folders,
                opened_folder(self._unfinished) as source,
            ):
                if replaces:
                    os.replace(unfinished, name, src_dir_fd=source, dst_dir_fd=folders[-1])
                else:
                    os.link(unfinished, name, src_dir_fd=source, dst_dir_fd=folders[-1], follow_symlinks=False)
                for folder in reversed(folders):
                    os.fsync(folder)
                return
        raise StorageError(
            operation, key, f"the folder or the unfinished file was removed in each of {PUBLISH_ATTEMPTS} attempts"
        )

    @contextlib.contextmanager
    def _opened_parent(self, operation: str, key: str) -> Iterator[tuple[int, str]]:
        *inner, name = check_key(operation, key).split("/")
        with opened_folder((*self.parts, *inner)) as folder:
            yield folder, name

    @contextlib.contextmanager
    def _opened_file(self, operation: str, key: str) -> Iterator[int]:
        descriptor = open_path((*self.parts, check_key(operation, key)), READ_FILE)
        if descriptor == NO_DESCRIPTOR:
            with self._opened_parent(operation, key) as (folder, name):
                _info(operation, key, name, folder)
                descriptor = os.open(name, READ_FILE, dir_fd=folder)
        try:
            _check_regular(operation, key, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _walk(self, folder: str, prefix: str, start_after: str) -> Iterator[ObjectInfo]:
        """Yield the objects below ``folder`` (empty or ending in ``/``) in bytewise order of whole keys."""
        names = self._names(folder)
        for start in range(0, len(names), STATUS_BATCH):
            for key, info in self._statuses(folder, names[start : start + STATUS_BATCH], prefix, start_after):
                if info is not None:
                    yield info
                elif key != RESERVED_PART + "/" and len(key.encode()) < KEY_SIZE_MAX:
                    yield from self._walk(key, prefix, start_after)

    def _statuses(
        self, folder: str, names: Sequence[str], prefix: str, start_after: str
    ) -> Sequence[tuple[str, ObjectInfo | None]]:
        """Return those of ``names`` that the listing includes: objects with their status, folders with None."""
        after = start_after.encode()
        found = deque[tuple[str, ObjectInfo | None]]()
        with (
            contextlib.suppress(ObjectNotFound),
            self.translated("list", folder),
            opened_folder((*self.parts, *folder.split("/")[:-1])) as descriptor,
        ):
            for name in names:
                key = folder + name
                if not key.startswith(prefix):
                    continue
                if name.endswith("/"):
                    found.append((key, None))
                elif key.encode() > after:
                    # A file may be removed or replaced by a folder after the folder was listed.
                    with contextlib.suppress(ObjectNotFound, FileNotFoundError):
                        found.append((key, _info("list", key, name, descriptor)))
        return found

    def _names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder in bytewise order, those of folders with a slash at the end.

        Links, FIFOs, sockets and devices are skipped and counted.
        """
        names = deque[bytes]()
        skipped = 0
        with (
            contextlib.suppress(ObjectNotFound),
            self.translated("list", folder),
            opened_folder((*self.parts, *folder.split("/")[:-1]), READ) as descriptor,
            os.scandir(descriptor) as entries,
        ):
            for entry in entries:
                name = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    names.append(name + b"/")
                elif entry.is_file(follow_symlinks=False):
                    names.append(name)
                else:
                    skipped += 1
        self.usage.record_skipped(skipped)
        # A folder sorts by its name with the slash: "a-b" precedes "a/x", because "-" is less than "/".
        return [name.decode("utf-8", "replace") for name in sorted(names)]

    def _prune(self, folder: Sequence[str]) -> None:
        """Remove ``folder`` and its parents while they are empty: buckets have no empty folders."""
        with contextlib.suppress(OSError):
            while folder:
                *above, name = folder
                with opened_folder((*self.parts, *above)) as descriptor:
                    os.rmdir(name, dir_fd=descriptor)
                folder = above

    @contextlib.contextmanager
    def translated(self, operation: str, key: str, passed_on: tuple[type[OSError], ...] = ()) -> Iterator[None]:
        """Replace OSErrors by StorageErrors that name operation and key; errors of ``passed_on`` are not replaced."""
        is_write = operation in ("put", "create")
        try:
            yield
        except passed_on:
            raise
        except LinkFound as error:
            if error.position < len(self.parts):
                raise StorageError(operation, key, f"in the path of the store's folder, {error}") from error
            raise (InvalidKey if is_write else ObjectNotFound)(operation, key, str(error)) from error
        except (NotADirectoryError, IsADirectoryError) as error:
            if is_write:
                raise InvalidKey(operation, key, "one key cannot be a folder of another key") from error
            raise ObjectNotFound(operation, key, "no object has this key") from error
        except FileNotFoundError as error:
            raise ObjectNotFound(operation, key, "no object has this key") from error
        except OSError as error:
            raise StorageError(operation, key, error.strerror or str(error)) from error


class LocalWriter(ObjectWriter):
    """Writes a temporary file and renames it to its key."""

    def __init__(self, store: LocalStore, key: str, operation: str) -> None:
        self._store, self._key, self._operation = store, check_key(operation, key), operation
        self._info: ObjectInfo | None = None
        self._unfinished, self._file = store.create_unfinished(operation, key)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        with self._store.translated(self._operation, self._key):
            self._file.write(data)

    def commit(self) -> ObjectInfo:
        if self._info is None:
            try:
                self._info = self.publish(replaces=True)
            finally:
                self.abort()
        return self._info

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # unwritten data is discarded anyway
            self._file.close()
        self._store.remove_unfinished(self._unfinished)

    def publish(self, *, replaces: bool) -> ObjectInfo:
        """Sync the file and rename it to its key; raise FileExistsError if the key exists and ``replaces`` is false."""
        self._check_open()
        with self._store.translated(self._operation, self._key):
            self._file.flush()
            os.fsync(self._file.fileno())
            status = os.fstat(self._file.fileno())
            self._file.close()
        self._store.publish(self._operation, self._key, self._unfinished, replaces=replaces)
        self._store.usage.record(self._operation, status.st_size)
        return ObjectInfo(key=self._key, size=status.st_size, modified_at=status.st_mtime)

    def _check_open(self) -> None:
        if self._file.closed:
            raise StorageError(self._operation, self._key, "the writer is already committed or aborted")


def _created(name: str, folder: int) -> BinaryIO:
    return open(os.open(name, CREATE_FILE, 0o666, dir_fd=folder), "wb")


def _info(operation: str, key: str, name: str, folder: int) -> ObjectInfo:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    _check_regular(operation, key, status)
    return ObjectInfo(key=key, size=status.st_size, modified_at=status.st_mtime)


def _check_regular(operation: str, key: str, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ObjectNotFound(operation, key, "no object has this key")
    if not stat.S_ISREG(status.st_mode):
        kind = "a symbolic link" if stat.S_ISLNK(status.st_mode) else "a FIFO, a socket or a device"
        raise ObjectNotFound(operation, key, f"the name is that of {kind}; only regular files are objects")


def _read_range(descriptor: int, key: str, offset: int, length: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if offset < 0 or length < 0 or offset + length > size:
        raise InvalidRange("get_range", key, f"{length} bytes at {offset} of an object of {size} bytes")
    data = bytearray()
    while len(data) < length:  # one read returns at most 2 GiB
        piece = os.pread(descriptor, length - len(data), offset + len(data))
        if not piece:
            raise InvalidRange("get_range", key, "the object was truncated while it was read")
        if len(piece) == length:
            return piece
        data += piece
    return bytes(data)
