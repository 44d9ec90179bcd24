"""Codec of symbols: strings, mappings, functions, locations and stack trees of a dataset, in symbol partitions.

The format is "Symbols" in ``docs/reference/formats/profile-block.md``. Selects the compiled implementation if it is
built, or pure Python with ``LITHIFY_PURE=1``. Decoding verifies all checksums and references. Addresses and offsets are
unsigned 64-bit numbers in decoded symbols, although their columns are signed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel

if TYPE_CHECKING:
    from engine.formats.profile_block.symbols._symbols_py import decode_symbols, encode_symbols
else:
    decode_symbols, encode_symbols = load_kernel(
        "engine.formats.profile_block.symbols._symbols", "decode_symbols", "encode_symbols"
    )

__all__ = ["decode_symbols", "encode_symbols"]
