"""The series index: which series a dataset has, their labels, time ranges and numbers.

The door to two implementations of one format (``docs/reference/formats/profile-block.md``): the plain twin defines it,
the compiled one is used when it is built, unless ``LITHIFY_PURE=1``. Decoding verifies every checksum and costs about
20 us a series in the twin.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.profile_block.series._series_index_py import decode_series_index, encode_series_index
else:
    try:
        from engine.formats.profile_block.series._series_index import decode_series_index, encode_series_index

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.profile_block.series._series_index_py import decode_series_index, encode_series_index

__all__ = ["IMPLEMENTATION", "decode_series_index", "encode_series_index"]
