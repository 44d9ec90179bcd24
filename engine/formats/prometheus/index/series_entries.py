"""Codec of the series section of an index, in batches.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which reads a series in
about 50 us.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.index._series_entries_py import decode_series, encode_series
else:
    try:
        from engine.formats.prometheus.index._series_entries import decode_series, encode_series

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.index._series_entries_py import decode_series, encode_series

__all__ = ["IMPLEMENTATION", "decode_series", "encode_series"]
