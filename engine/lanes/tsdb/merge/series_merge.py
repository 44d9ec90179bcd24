"""The merge of series by label and of their chunks by time, many series at a time.

Selects one of two implementations of ``SeriesMerge``: the pure Python one is the reference, the compiled one is used if
it is built, unless ``LITHIFY_PURE=1``. Both give the same bytes. Both delegate rare cases to the caller
(``MergeStop.PLAIN``), which merges them with ``engine.lanes.tsdb.merge.overlaps`` and puts the chunks back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.lanes.tsdb.merge._series_merge_py import SeriesMerge
else:
    (SeriesMerge,) = load_kernel("engine.lanes.tsdb.merge._series_merge", "SeriesMerge")

__all__ = ["SeriesMerge"]
