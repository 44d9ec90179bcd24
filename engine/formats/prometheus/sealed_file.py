"""Sequentially written files that are synced when they are closed."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

BUFFER_BYTES = 1 << 20


class SealedFile:
    """Appends to a new file; ``position`` is its size. ``close`` syncs it; an exception in a ``with`` block does not.

    ``is_durable`` false skips fsync.
    """

    def __init__(self, path: Path, *, is_durable: bool = True) -> None:
        self.path = path
        self.position = 0
        self._is_durable = is_durable
        self._file = path.open("xb", buffering=BUFFER_BYTES)

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._file.write(data)
        self.position += len(data)

    def pad(self, alignment: int) -> None:
        """Append zeros up to the next multiple of ``alignment``."""
        self.write(bytes(-self.position % alignment))

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at an earlier offset."""
        self._file.seek(offset)
        self._file.write(data)
        self._file.seek(self.position)

    def flush(self) -> None:
        """Flush the buffer, so that readers of the file see its contents."""
        self._file.flush()

    def close(self) -> None:
        """Flush and close the file, and sync it if it is durable."""
        if not self._file.closed:
            self._file.flush()
            if self._is_durable:
                os.fsync(self._file.fileno())
            self._file.close()

    def discard(self) -> None:
        """Close the file without syncing it."""
        self._file.close()

    def __enter__(self) -> SealedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


def sync_folder(folder: Path) -> None:
    """Sync a folder, which makes the names in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
