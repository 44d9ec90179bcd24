"""Entries of the series section of an index, many at a time, as arrays.

The door to two implementations of one format: the plain twin defines it, the compiled one is used when it is built,
unless ``LITHIFY_PURE=1``. Reading a series costs about 50 us in the twin.
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
