"""Union of the symbol tables of several indexes, with translations of symbol numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.index.index_layout import HEADER_BYTES, SECTION
from engine.formats.prometheus.index.symbol_merge import merge_symbols
from engine.formats.prometheus.index.symbol_table import SymbolTable

BYTES_PER_SYMBOL = 9
"""Memory per symbol of each table: its position, its number in the union, whether it is used."""
BLOCK_BYTES = 256 << 10

Used = npt.NDArray[np.bool_]


def check_symbol_budget(table: SymbolTable, budget_bytes: int) -> None:
    """Raise LimitExceeded if the symbol numbers of a block exceed their part of a merge's memory budget."""
    if (size := BYTES_PER_SYMBOL * len(table)) > symbol_bytes_max(budget_bytes):
        reason = f"{len(table)} symbols need {size} bytes, over half of the merge's budget of {budget_bytes} bytes"
        raise LimitExceeded(SECTION, HEADER_BYTES, reason)


def symbol_bytes_max(budget_bytes: int) -> int:
    """Return the part of a merge's memory budget that all symbol numbers may use."""
    return budget_bytes // 2


class SymbolUnion:
    """The ascending symbols of all tables.

    ``translations`` map the symbol numbers of each table to the union; they are complete after ``blocks`` is exhausted.
    """

    def __init__(self, tables: Sequence[SymbolTable], used: Sequence[Used] | None) -> None:
        """Create the union of all symbols, or of those that are ``used`` in each table."""
        self._tables = tables
        self._used = used
        self.translations = [np.zeros(len(table), np.uint32) for table in tables]

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield blocks of symbols in the encoding of an index, and the number of symbols in each block."""
        heads = np.zeros(len(self._tables), np.int64)
        number = 0
        while True:
            block, count = merge_symbols(self._tables, self._used, heads, self.translations, number, BLOCK_BYTES)
            if not count:
                return
            yield block, count
            number += count
