"""Hashes of rows, whose sum verifies that the rows written are the rows read, in any order.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.tables.merge._row_hashes_py import add_bytes, add_lists, add_words
else:
    add_bytes, add_lists, add_words = load_kernel(
        "engine.lanes.tables.merge._row_hashes", "add_bytes", "add_lists", "add_words"
    )

__all__ = ["add_bytes", "add_lists", "add_words"]
