"""Codec of blocks of sorted rows, and the merge of layers over a base.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``; both give the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.ranges._entry_blocks_py import decode_block, encode_rows, merge_blocks, spread_rows
else:
    decode_block, encode_rows, merge_blocks, spread_rows = load_kernel(
        "engine.formats.ranges._entry_blocks", "decode_block", "encode_rows", "merge_blocks", "spread_rows"
    )

__all__ = ["decode_block", "encode_rows", "merge_blocks", "spread_rows"]
