"""Twin of walking and searching the symbols of an index: plain Python, the definition."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.file_cursor import FileCursor
from engine.formats.prometheus.index.index_layout import SECTION

Positions = npt.NDArray[np.uint32]


def scan_symbols(data: memoryview, start: int, end: int) -> Positions:
    """Return where each symbol's length stands, counted from ``start``, where their number is; they must ascend."""
    body = FileCursor(data, SECTION, start, end)
    positions, previous = array("I"), b""
    for number in range(body.count(body.u32(), 1, "symbols")):
        at = body.position
        symbol = body.text()
        if number and symbol <= previous:
            raise OutOfOrder(SECTION, at, f"symbol {number} does not follow the one before it")
        positions.append(at - start)
        previous = symbol
    if body.left:
        raise BadObject(SECTION, body.position, f"{body.left} bytes after the last symbol")
    return np.array(positions, np.uint32)


def find_symbol(data: memoryview, start: int, end: int, positions: Positions, symbol: bytes) -> int:
    """Return the number of the first symbol that is not before ``symbol``, of those that ``scan_symbols`` found."""
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        if FileCursor(data, SECTION, start + int(positions[middle]), end).text() < symbol:
            low = middle + 1
        else:
            high = middle
    return low
