"""Keys of rows and the merge of sorted runs of them.

The door to two implementations: the plain twin defines them, the compiled one is used when it is built, unless
``LITHIFY_PURE=1``. A key is the bytes whose order is the order of rows; no key begins with another of its merge.
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
