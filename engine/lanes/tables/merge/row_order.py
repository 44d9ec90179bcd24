"""Keys of rows, and the merge of sorted runs.

Selects one of two implementations: the pure Python one is the reference, the compiled one is used if it is built,
unless ``LITHIFY_PURE=1``. The order of a key's bytes is the order of rows; no key is a prefix of another one in a
merge.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.tables.merge._row_order_py import first_unsorted, join_parts, merge_runs
else:
    first_unsorted, join_parts, merge_runs = load_kernel(
        "engine.lanes.tables.merge._row_order", "first_unsorted", "join_parts", "merge_runs"
    )

__all__ = ["first_unsorted", "join_parts", "merge_runs"]
