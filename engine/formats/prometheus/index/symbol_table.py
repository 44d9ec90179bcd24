"""The symbol table of an index: each label name and value once, ascending; a symbol's number is its position."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadReference, LimitExceeded
from engine.formats.prometheus.index.index_layout import LABEL_BYTES_MAX, SECTION
from engine.formats.prometheus.index.symbol_positions import Positions, find_symbol, scan_symbols
from engine.formats.prometheus.mapped_file import FileCursor


class SymbolTable:
    """Symbols by number. The strings remain in the file; four bytes per symbol are held in memory."""

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        """Verify checksum, lengths and order of the symbols from ``start`` to ``end`` of an index.

        Raises BadObject, and LimitExceeded for a symbol longer than LABEL_BYTES_MAX.
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
        """Return the encoded size in bytes of each of these symbols, with its length prefix."""
        after = numbers.astype(np.int64) + 1
        last = len(self._positions) - 1
        ends = np.where(after > last, self._end - self._start, self._positions[np.minimum(after, last)])
        return ends.astype(np.int64) - self._positions[numbers]

    def _longest(self) -> int:
        """Return the encoded size of the longest symbol, with its length prefix."""
        if not len(self._positions):
            return 0
        sizes = np.append(np.diff(self._positions), np.uint32(self._end - self._start - int(self._positions[-1])))
        number = int(np.argmax(sizes))
        if (longest := int(sizes[number])) > LABEL_BYTES_MAX:
            reason = f"a symbol of {longest} bytes exceeds the maximum of {LABEL_BYTES_MAX}"
            raise LimitExceeded(SECTION, self._start + int(self._positions[number]), reason)
        return longest

    def parts(self) -> tuple[memoryview, int, int, Positions]:
        """Return the bytes of the index, start and end of the symbols, and their positions relative to the start."""
        return self._data, self._start, self._end, self._positions

    def find(self, symbol: bytes) -> int | None:
        """Return the number of a symbol, None if the table does not have it."""
        number = find_symbol(self._data, self._start, self._end, self._positions, symbol)
        return number if number < len(self) and self[number] == symbol else None
