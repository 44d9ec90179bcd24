"""The symbols of an index: every label name and value once, ascending; a symbol's number is its place."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.prometheus.file_cursor import FileCursor
from engine.formats.prometheus.index.index_layout import LABEL_BYTES_MAX, SECTION
from engine.formats.prometheus.index.symbol_positions import Positions, find_symbol, scan_symbols


class SymbolTable:
    """Symbols by number. The strings stay in the file; four bytes are held for each."""

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        """Check the part of an index from ``start`` to ``end``: checksum, lengths, order.

        LimitExceeded for a symbol that is longer than all labels of a series may be.
        """
        cursor = FileCursor(data, SECTION, start, end)
        body = cursor.checked(cursor.u32())
        cursor.expect_end()
        self._data = data
        self._start = body.position
        self._end = body.end
        self._positions = scan_symbols(data, body.position, body.end)
        self.longest_bytes = self._longest()

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, number: int) -> bytes:
        if not 0 <= number < len(self._positions):
            raise BadReference(SECTION, self._start, f"symbol {number} of {len(self._positions)}")
        return FileCursor(self._data, SECTION, self._start + int(self._positions[number]), self._end).text()

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))

    def sizes(self, numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
        """Return how many bytes each of these symbols takes, with its length before it."""
        after = numbers.astype(np.int64) + 1
        last = len(self._positions) - 1
        ends = np.where(after > last, self._end - self._start, self._positions[np.minimum(after, last)])
        return ends.astype(np.int64) - self._positions[numbers]

    def _longest(self) -> int:
        """Return the most bytes that a symbol takes, with its length before it."""
        if not len(self._positions):
            return 0
        sizes = np.append(np.diff(self._positions), np.uint32(self._end - self._start - int(self._positions[-1])))
        number = int(np.argmax(sizes))
        if (longest := int(sizes[number])) > LABEL_BYTES_MAX:
            reason = f"a symbol of {longest} bytes, at most {LABEL_BYTES_MAX} are read"
            raise LimitExceeded(SECTION, self._start + int(self._positions[number]), reason)
        return longest

    def parts(self) -> tuple[memoryview, int, int, Positions]:
        """Return the bytes of the index, where the symbols start and end in them, and each one's place from there."""
        return self._data, self._start, self._end, self._positions

    def find(self, symbol: bytes) -> int | None:
        """Return the number of a symbol, None if it is none."""
        number = find_symbol(self._data, self._start, self._end, self._positions, symbol)
        return number if number < len(self) and self[number] == symbol else None
