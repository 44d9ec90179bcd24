"""Merge the rows, series indexes and symbols of all sources of a dataset into one dataset.

Selects one of two implementations of the rules in ``engine.formats.profile_block.merge_model``: the compiled one if it
is built, unless ``LITHIFY_PURE=1``; otherwise the pure Python reference. Both write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.profiles.merge._dataset_merge_py import merge_rows
else:
    (merge_rows,) = load_kernel("engine.lanes.profiles.merge._dataset_merge", "merge_rows")

__all__ = ["merge_rows"]
