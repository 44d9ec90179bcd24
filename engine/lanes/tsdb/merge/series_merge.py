"""The merge of series by label and of their chunks by time, many series at a time.

Selects one of two implementations of ``SeriesMerge``: the pure Python one is the reference, the compiled one is used if
it is built, unless ``LITHIFY_PURE=1``. Both give the same bytes. Both delegate rare cases to the caller
(``MergeStop.PLAIN``), which merges them with ``engine.lanes.tsdb.merge.overlaps`` and puts the chunks back.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.lanes.tsdb.merge._series_merge_py import SeriesMerge
else:
    try:
        from engine.lanes.tsdb.merge._series_merge import SeriesMerge

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.lanes.tsdb.merge._series_merge_py import SeriesMerge

__all__ = ["IMPLEMENTATION", "SeriesMerge"]
