"""Blocks of sorted rows: written, read, and layers of them merged over a base.

The door to two implementations: the plain twin defines them, the compiled one is used when it is built, unless
``LITHIFY_PURE=1``. Both give the same bytes.
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
