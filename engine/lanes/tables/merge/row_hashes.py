"""Hashes of rows, whose sum verifies that the rows written are the rows read, in any order.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.tables.merge._row_hashes_py import add_bytes, add_lists, add_words
else:
    try:
        from engine.lanes.tables.merge._row_hashes import add_bytes, add_lists, add_words

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.tables.merge._row_hashes_py import add_bytes, add_lists, add_words

__all__ = ["IMPLEMENTATION", "add_bytes", "add_lists", "add_words"]
