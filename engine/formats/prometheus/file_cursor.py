"""Reads numbers from a part of a mapped file; errors name the file and the absolute offset."""

from __future__ import annotations

from engine.core.checked_reader import CheckedReader
from engine.core.errors import BadObject


class FileCursor(CheckedReader[memoryview]):
    """A cursor over a mapped file; see ``CheckedReader``. The section is the file's name."""

    __slots__ = ()

    def count(self, count: int, unit_bytes: int, what: str) -> int:
        """Return ``count``, refused if so many items of at least ``unit_bytes`` cannot follow."""
        return self.bounded(count, unit_bytes, what, self.position)

    def skip_zeros(self, alignment: int) -> None:
        """Step to the next multiple of ``alignment`` in the file over bytes that must be zero."""
        start = self.position
        if any(self.take(min(-start % alignment, self.left))):
            raise BadObject(self.section, start, "the padding is not zero")
