"""Codec of series indexes: the series of a dataset with their labels, time ranges and numbers.

The format is "Series index" in ``docs/reference/formats/profile-block.md``. Selects the compiled implementation if it
is built, or pure Python with ``LITHIFY_PURE=1``, which decodes a series in about 20 us. Decoding verifies checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.profile_block.series._series_index_py import decode_series_index, encode_series_index
else:
    decode_series_index, encode_series_index = load_kernel(
        "engine.formats.profile_block.series._series_index", "decode_series_index", "encode_series_index"
    )

__all__ = ["decode_series_index", "encode_series_index"]
