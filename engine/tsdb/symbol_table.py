"""The symbols of an index: every label name and value once, ascending; a symbol's number is its place."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

import numpy as np

from engine.profiles.errors import BadObject, BadReference
from engine.tsdb.errors import OutOfOrder
from engine.tsdb.file_cursor import FileCursor
from engine.tsdb.index_layout import SECTION


class SymbolTable:
    """Symbols by number. The strings stay in the file; four bytes are held for each."""

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        """Check the part of an index from ``start`` to ``end``: checksum, lengths, order."""
        cursor = FileCursor(data, SECTION, start, end)
        body = cursor.checked(cursor.u32())
        cursor.expect_end()
        self._data = data
        self._start = body.position
        self._end = body.end
        self._positions = np.frombuffer(self._scan(body), np.uint32)

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self._positions):
            raise BadReference(SECTION, self._start, f"symbol {number} of {len(self._positions)}")
        return FileCursor(self._data, SECTION, self._start + int(self._positions[number]), self._end).text()

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))

    def find(self, symbol: bytes) -> int | None:
        """Return the number of a symbol, None if it is none."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if self[middle] < symbol:
                low = middle + 1
            else:
                high = middle
        return low if low < len(self) and self[low] == symbol else None

    @staticmethod
    def _scan(body: FileCursor) -> array[int]:
        start, positions, previous = body.position, array("I"), b""
        for number in range(body.count(body.u32(), 1, "symbols")):
            at = body.position
            symbol = body.text()
            if number and symbol <= previous:
                raise OutOfOrder(SECTION, at, f"symbol {number} does not follow the one before it")
            positions.append(at - start)
            previous = symbol
        if body.left:
            raise BadObject(SECTION, body.position, f"{body.left} bytes after the last symbol")
        return positions
