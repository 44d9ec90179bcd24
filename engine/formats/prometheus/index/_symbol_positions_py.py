"""Reference implementation of the scan and search of symbols in pure Python."""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject
from engine.formats.prometheus.errors import OutOfOrder
from engine.formats.prometheus.index.index_layout import SECTION
from engine.formats.prometheus.mapped_file import FileCursor

Positions = npt.NDArray[np.uint32]


def scan_symbols(data: memoryview, start: int, end: int) -> Positions:
    """Return the position of each symbol's length relative to ``start``, which holds their number; they must ascend."""
    body = FileCursor(data, SECTION, start, end)
    positions, previous = array("I"), b""
    for number in range(body.count(body.u32(), 1, "symbols")):
        at = body.position
        symbol = body.text()
        if number and symbol <= previous:
            raise OutOfOrder(SECTION, at, f"symbol {number} does not sort after the previous one")
        positions.append(at - start)
        previous = symbol
    if body.left:
        raise BadObject(SECTION, body.position, f"{body.left} unexpected bytes after the last symbol")
    return np.array(positions, np.uint32)


def find_symbol(data: memoryview, start: int, end: int, positions: Positions, symbol: bytes) -> int:
    """Return the number of the first symbol not less than ``symbol``; ``positions`` are those of ``scan_symbols``."""
    low, high = 0, len(positions)
    while low < high:
        middle = (low + high) // 2
        if FileCursor(data, SECTION, start + int(positions[middle]), end).text() < symbol:
            low = middle + 1
        else:
            high = middle
    return low
