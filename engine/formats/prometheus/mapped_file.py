"""A file's bytes, mapped: what was read once can be dropped from memory while the file stays open."""

from __future__ import annotations

import mmap
from pathlib import Path

FORGET_BYTES = 8 << 20
"""Whoever reads a large part from front to back lets go of what lies behind in steps of this size."""


class MappedFile:
    """The bytes of a file as ``data``. The mapping ends when nothing refers to it any more."""

    def __init__(self, path: Path, forget_bytes: int = FORGET_BYTES) -> None:
        with path.open("rb") as file:
            # An empty file cannot be mapped.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None
        self.data = memoryview(self._map if self._map is not None else b"")
        self._forget_bytes = forget_bytes
        self._forgotten = 0

    def forget_before(self, offset: int) -> None:
        """Let the system take back the pages of what was read before ``offset``; reading them again still works."""
        if self._map is None:
            return
        if offset < self._forgotten:  # read from the front again
            self._forgotten = 0
        if offset - self._forgotten < self._forget_bytes:
            return
        start = self._forgotten
        self._forgotten = offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, self._forgotten - start)

    def forget(self) -> None:
        """Let the system take back all pages."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._forgotten = 0
