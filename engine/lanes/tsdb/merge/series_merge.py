"""The merge of series by label and of their chunks by time, many series at a time.

The door to two implementations of one class, ``SeriesMerge``: the plain twin defines it, the compiled one is used when
it is built, unless ``LITHIFY_PURE=1``. Both give the same bytes. What is rare, ``engine.lanes.tsdb.merge.overlaps``
does for both: the caller is asked (``Turn.PLAIN``) and gives the chunks back.
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
