"""Merge of symbol tables, some thousand symbols at a time.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which merges a symbol in
about 5 us.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.index._symbol_merge_py import merge_symbols
else:
    try:
        from engine.formats.prometheus.index._symbol_merge import merge_symbols

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.index._symbol_merge_py import merge_symbols

__all__ = ["IMPLEMENTATION", "merge_symbols"]
