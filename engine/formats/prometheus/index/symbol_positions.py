"""Scan of the positions of symbols, and binary search of a symbol.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which scans a symbol in
about 3 us.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.formats.prometheus.index._symbol_positions_py import Positions

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.index._symbol_positions_py import find_symbol, scan_symbols
else:
    try:
        from engine.formats.prometheus.index._symbol_positions import find_symbol, scan_symbols

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.index._symbol_positions_py import find_symbol, scan_symbols

__all__ = ["IMPLEMENTATION", "Positions", "find_symbol", "scan_symbols"]
