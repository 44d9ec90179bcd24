"""Hashes of series, which determine their partition.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.tsdb.merge._series_hashes_py import hash_series
else:
    try:
        from engine.lanes.tsdb.merge._series_hashes import hash_series

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.tsdb.merge._series_hashes_py import hash_series

__all__ = ["IMPLEMENTATION", "hash_series"]
