"""The merge of one dataset: rows, series index and symbols of all its sources become one dataset.

The door to two implementations of one operation, whose rules are in ``engine.formats.profile_block.merge_model``: the
plain twin defines it, the compiled one is used when it is built, unless ``LITHIFY_PURE=1``. Both give the same bytes.
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
