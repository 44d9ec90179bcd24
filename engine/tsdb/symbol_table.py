"""The symbols of an index: every label name and value once, ascending; a symbol's number is its place."""

from __future__ import annotations

from collections.abc import Iterator

from engine.profiles.errors import BadReference
from engine.tsdb.file_cursor import FileCursor
from engine.tsdb.index_layout import SECTION
from engine.tsdb.symbol_positions import Positions, find_symbol, scan_symbols


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
        self._positions = scan_symbols(data, body.position, body.end)

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self._positions):
            raise BadReference(SECTION, self._start, f"symbol {number} of {len(self._positions)}")
        return FileCursor(self._data, SECTION, self._start + int(self._positions[number]), self._end).text()

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))

    def parts(self) -> tuple[memoryview, int, int, Positions]:
        """Return the bytes of the index, where the symbols start and end in them, and each one's place from there."""
        return self._data, self._start, self._end, self._positions

    def find(self, symbol: bytes) -> int | None:
        """Return the number of a symbol, None if it is none."""
        number = find_symbol(self._data, self._start, self._end, self._positions, symbol)
        return number if number < len(self) and self[number] == symbol else None
