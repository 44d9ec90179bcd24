"""An object of a store as the file that pyarrow reads from."""

from __future__ import annotations

import io

import pyarrow as pa

from engine.storage import ObjectStore

WHOLE_BYTES = 4 << 20
"""Objects up to this size are fetched at once: fewer requests, and the pages lie in memory anyway."""


def open_object(store: ObjectStore, path: str, size: int) -> pa.NativeFile:
    """Open an object for pyarrow; ``size`` is what it should have. Reading raises StorageError if it is shorter."""
    if size <= WHOLE_BYTES:
        return pa.BufferReader(store.get_range(path, 0, size))
    return pa.PythonFile(_ObjectFile(store, path, size), mode="r")


class _ObjectFile(io.RawIOBase):
    """Every read is one request of a range; pyarrow joins ranges that lie near each other."""

    def __init__(self, store: ObjectStore, path: str, size: int) -> None:
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Return the size; pyarrow asks for it."""
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._position, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        if not wanted:
            return b""
        data = self._store.get_range(self._path, self._position, wanted)
        self._position += len(data)
        return data
