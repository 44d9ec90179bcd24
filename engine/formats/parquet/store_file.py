"""Access to an object of a store as a file of pyarrow."""

from __future__ import annotations

import io

import pyarrow as pa

from engine.storage import ObjectStore

WHOLE_BYTES = 4 << 20
"""Objects up to this size are read with one request."""


def open_object(store: ObjectStore, path: str, size: int) -> pa.NativeFile:
    """Open an object of ``size`` bytes for pyarrow. Reads raise StorageError if it is shorter."""
    if size <= WHOLE_BYTES:
        return pa.BufferReader(store.get_range(path, 0, size))
    return pa.PythonFile(_ObjectFile(store, path, size), mode="r")


class _ObjectFile(io.RawIOBase):
    """Sends one range request per read; pyarrow coalesces adjacent ranges."""

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
        """Return the size, which pyarrow requires."""
        return self._size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._position, 0)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        data = self._store.get_range(self._path, self._position, length)
        self._position += len(data)
        return data
