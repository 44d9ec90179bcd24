"""Reads numbers from a section of a profile object that is in memory."""

from __future__ import annotations

from engine.core.checked_reader import CheckedReader


class ByteReader(CheckedReader[bytes]):
    """A cursor over bytes; see ``CheckedReader``."""

    __slots__ = ()

    def u16(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def i64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def count(self, unit_bytes: int) -> int:
        """Return a u32 count of items that take at least ``unit_bytes`` each, refusing more than can follow."""
        start = self.position
        return self.bounded(self.u32(), unit_bytes, "items", start)
