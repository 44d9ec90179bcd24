"""Scan of the positions of symbols, and binary search of a symbol.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which scans a symbol in
about 3 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel
from engine.formats.prometheus.index._symbol_positions_py import Positions

if TYPE_CHECKING:
    from engine.formats.prometheus.index._symbol_positions_py import find_symbol, scan_symbols
else:
    find_symbol, scan_symbols = load_kernel(
        "engine.formats.prometheus.index._symbol_positions", "find_symbol", "scan_symbols"
    )

__all__ = ["Positions", "find_symbol", "scan_symbols"]
