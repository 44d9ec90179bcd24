"""Twin of the merge of symbols: plain Python, the definition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.formats.prometheus.index.symbol_table import SymbolTable
from engine.formats.prometheus.varints import uvarint


def merge_symbols(
    tables: Sequence[SymbolTable],
    used: Sequence[npt.NDArray[np.bool_]] | None,
    heads: npt.NDArray[np.int64],
    translations: Sequence[npt.NDArray[np.uint32]],
    first_number: int,
    most_bytes: int,
) -> tuple[bytes, int]:
    """Return the next symbols as a table has them, about ``most_bytes``, and how many; none at the end.

    ``heads`` are how many symbols of each table are done, and move on; ``translations`` get the numbers, which count on
    from ``first_number``. Only symbols that a table says are ``used`` are taken of it.
    """
    out, count = bytearray(), 0
    while len(out) < most_bytes:
        waiting = []
        for place, table in enumerate(tables):
            while used is not None and heads[place] < len(table) and not used[place][heads[place]]:
                heads[place] += 1
            if heads[place] < len(table):
                waiting.append((table[int(heads[place])], place))
        if not waiting:
            break
        symbol, _ = min(waiting)
        for found, place in waiting:
            if found == symbol:
                translations[place][heads[place]] = first_number + count
                heads[place] += 1
        out += uvarint(len(symbol)) + symbol
        count += 1
    return bytes(out), count
