"""Codec of the series section of an index, in batches.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which reads a series in
about 50 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.prometheus.index._series_entries_py import decode_series, encode_series
else:
    decode_series, encode_series = load_kernel(
        "engine.formats.prometheus.index._series_entries", "decode_series", "encode_series"
    )

__all__ = ["decode_series", "encode_series"]
