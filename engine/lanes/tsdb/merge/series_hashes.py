"""Hashes of series, which determine their partition.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.tsdb.merge._series_hashes_py import hash_series
else:
    (hash_series,) = load_kernel("engine.lanes.tsdb.merge._series_hashes", "hash_series")

__all__ = ["hash_series"]
