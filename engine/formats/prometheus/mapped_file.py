"""Memory-mapped files whose pages can be released, and bounds-checked cursors over them."""

from __future__ import annotations

import mmap
from pathlib import Path

from engine.core.binary import CheckedReader
from engine.core.errors import BadObject

FORGET_BYTES = 8 << 20
"""Step in which sequential readers release pages."""


class MappedFile:
    """The bytes of a file as ``data``. The mapping ends with the last reference to it."""

    def __init__(self, path: Path, forget_bytes: int = FORGET_BYTES) -> None:
        with path.open("rb") as file:
            # Empty files cannot be mapped.
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else None
        self.data = memoryview(self._map if self._map is not None else b"")
        self._forget_bytes = forget_bytes
        self._forgotten = 0

    def forget_before(self, offset: int) -> None:
        """Release the pages before ``offset``; they can be read again."""
        if self._map is None:
            return
        if offset < self._forgotten:  # a new sequential read
            self._forgotten = 0
        if offset - self._forgotten < self._forget_bytes:
            return
        start = self._forgotten
        self._forgotten = offset // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, start, self._forgotten - start)

    def forget(self) -> None:
        """Release all pages; they can be read again."""
        if self._map is not None:
            self._map.madvise(mmap.MADV_DONTNEED)
            self._forgotten = 0


class FileCursor(CheckedReader[memoryview]):
    """A bounds-checked cursor over a mapped file; the section of its errors is the name of the file."""

    __slots__ = ()

    def count(self, count: int, unit_bytes: int, what: str) -> int:
        """Return ``count``; raise LimitExceeded if so many items of at least ``unit_bytes`` cannot follow."""
        return self.bounded(count, unit_bytes, what, self.position)

    def skip_zeros(self, alignment: int) -> None:
        """Skip padding to the next multiple of ``alignment`` in the file; raise BadObject unless it is zero."""
        start = self.position
        if any(self.take(min(-start % alignment, self.left))):
            raise BadObject(self.section, start, "the padding is not zero")
