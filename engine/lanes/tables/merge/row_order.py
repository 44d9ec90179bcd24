"""Keys of rows, and the merge of sorted runs.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``. The order of a key's bytes is the order of rows; no key is a prefix of another one in a
merge.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.tables.merge._row_order_py import first_unsorted, join_parts, merge_runs
else:
    try:
        from engine.lanes.tables.merge._row_order import first_unsorted, join_parts, merge_runs

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.tables.merge._row_order_py import first_unsorted, join_parts, merge_runs

__all__ = ["IMPLEMENTATION", "first_unsorted", "join_parts", "merge_runs"]
