"""Where the symbols of an index lie, and which of them is a given string.

The door to two implementations: the plain twin defines them, the compiled one is used when it is built, unless
``LITHIFY_PURE=1``. The walk costs about 3 us a symbol in the twin.
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
