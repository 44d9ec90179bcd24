"""Merge of symbol tables, some thousand symbols at a time.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which merges a symbol in
about 5 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.prometheus.index._symbol_merge_py import merge_symbols
else:
    (merge_symbols,) = load_kernel("engine.formats.prometheus.index._symbol_merge", "merge_symbols")

__all__ = ["merge_symbols"]
