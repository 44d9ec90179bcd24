"""Symbols: strings, mappings, functions, locations and stack trees of a dataset, in partitions.

The door to two implementations of one format (``docs/reference/formats/profile-block.md``): the plain twin defines it,
the compiled one is used when it is built, unless ``LITHIFY_PURE=1``. Decoding verifies every checksum and reference.
Addresses and offsets are unsigned 64-bit numbers in decoded symbols, whatever sign their column has.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.profile_block.symbols._symbols_py import decode_symbols, encode_symbols
else:
    try:
        from engine.formats.profile_block.symbols._symbols import decode_symbols, encode_symbols

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.profile_block.symbols._symbols_py import decode_symbols, encode_symbols

__all__ = ["IMPLEMENTATION", "decode_symbols", "encode_symbols"]
