"""Reference implementation of the merge of symbol tables in pure Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.core.binary import encode_uvarint
from engine.formats.prometheus.index.symbol_table import SymbolTable


def merge_symbols(
    tables: Sequence[SymbolTable],
    used: Sequence[npt.NDArray[np.bool_]] | None,
    heads: npt.NDArray[np.int64],
    translations: Sequence[npt.NDArray[np.uint32]],
    first_number: int,
    most_bytes: int,
) -> tuple[bytes, int]:
    """Return the next symbols in the encoding of a symbol table, about ``most_bytes``, and their number; 0 at the end.

    ``heads`` are the numbers of consumed symbols of each table and are advanced; ``translations`` get the new numbers,
    from ``first_number`` on. Symbols outside of ``used`` are skipped.
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
        out += encode_uvarint(len(symbol)) + symbol
        count += 1
    return bytes(out), count
