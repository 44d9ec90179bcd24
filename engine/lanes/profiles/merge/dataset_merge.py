"""Merge the rows, series indexes and symbols of all sources of a dataset into one dataset.

Selects one of two implementations of the rules in ``engine.formats.profile_block.merge_model``: the compiled one if it
is built, unless ``LITHIFY_PURE=1``; otherwise the pure Python reference. Both write the same bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.profiles.merge._dataset_merge_py import merge_rows
else:
    try:
        from engine.lanes.profiles.merge._dataset_merge import merge_rows

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.profiles.merge._dataset_merge_py import merge_rows

__all__ = ["IMPLEMENTATION", "merge_rows"]
