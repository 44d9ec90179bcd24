"""Codec of blocks of sorted rows, and the merge of layers over a base.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``; both give the same bytes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.ranges._entry_blocks_py import decode_block, encode_rows, merge_blocks, spread_rows
else:
    try:
        from engine.formats.ranges._entry_blocks import decode_block, encode_rows, merge_blocks, spread_rows

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.ranges._entry_blocks_py import decode_block, encode_rows, merge_blocks, spread_rows

__all__ = ["IMPLEMENTATION", "decode_block", "encode_rows", "merge_blocks", "spread_rows"]
