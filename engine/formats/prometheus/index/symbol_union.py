"""The symbols of several indexes as one table, and what number each of them has there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.core.errors import LimitExceeded
from engine.formats.prometheus.index.index_layout import HEADER_BYTES, SECTION
from engine.formats.prometheus.index.symbol_merge import merge_symbols
from engine.formats.prometheus.index.symbol_table import SymbolTable

BYTES_PER_SYMBOL = 9
"""What is held for each symbol of each table: its place, its number in the union, whether it is used."""
BLOCK_BYTES = 256 << 10

Used = npt.NDArray[np.bool_]


def refuse_many_symbols(table: SymbolTable, budget_bytes: int) -> None:
    """Raise LimitExceeded if the numbers of one block's symbols leave no room in the budget of a merge."""
    if (size := BYTES_PER_SYMBOL * len(table)) > symbol_bytes_max(budget_bytes):
        reason = f"the numbers of {len(table)} symbols take {size} bytes of a budget of {budget_bytes}"
        raise LimitExceeded(SECTION, HEADER_BYTES, reason)


def symbol_bytes_max(budget_bytes: int) -> int:
    """Return what of the budget of a merge the numbers of all symbols may take."""
    return budget_bytes // 2


class SymbolUnion:
    """Symbols of all tables, ascending. ``translations`` are the new numbers of each table's, complete after a walk."""

    def __init__(self, tables: Sequence[SymbolTable], used: Sequence[Used] | None) -> None:
        """Take all symbols, or those that a table says are ``used``."""
        self._tables = tables
        self._used = used
        self.translations = [np.zeros(len(table), np.uint32) for table in tables]

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield the symbols as an index has them, each with its length before it, and how many they are."""
        heads = np.zeros(len(self._tables), np.int64)
        number = 0
        while True:
            block, count = merge_symbols(self._tables, self._used, heads, self.translations, number, BLOCK_BYTES)
            if not count:
                return
            yield block, count
            number += count
