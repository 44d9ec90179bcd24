"""Codec of float chunks (encoding 1): times and values as differences from the previous sample.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which decodes a sample in
about 10 us.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine.formats.prometheus.chunks._xor_py import Times, ValueBits

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.formats.prometheus.chunks._xor_py import decode_xor, encode_xor
else:
    try:
        from engine.formats.prometheus.chunks._xor import decode_xor, encode_xor

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.formats.prometheus.chunks._xor_py import decode_xor, encode_xor

__all__ = ["IMPLEMENTATION", "Times", "ValueBits", "decode_xor", "encode_xor"]
