"""The symbols of several indexes as one table, and what number each of them has there."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from engine.tsdb.symbol_table import SymbolTable

BYTES_PER_SYMBOL = 9
"""What is held for each symbol of each table: its place, its number in the union, whether it is used."""

Used = npt.NDArray[np.bool_]


class SymbolUnion:
    """Symbols of all tables, ascending. ``translations`` are the new numbers of each table's, complete after a walk."""

    def __init__(self, tables: Sequence[SymbolTable], used: Sequence[Used] | None) -> None:
        """Take all symbols, or those that a table says are ``used``."""
        self._tables = tables
        self._used = used
        self.translations = [np.zeros(len(table), np.uint32) for table in tables]

    def __iter__(self) -> Iterator[bytes]:
        count = 0
        before: bytes | None = None
        for symbol, table, number in heapq.merge(*map(self._numbered, range(len(self._tables)))):
            if symbol != before:
                yield symbol
                before = symbol
                count += 1
            self.translations[table][number] = count - 1

    def _numbered(self, table: int) -> Iterator[tuple[bytes, int, int]]:
        for number, symbol in enumerate(self._tables[table]):
            if self._used is None or self._used[table][number]:
                yield symbol, table, number
