"""Float chunks (encoding 1): times and values as differences from the sample before.

The door to two implementations of one codec: the plain twin defines it, the compiled one is used when it is built,
unless ``LITHIFY_PURE=1``. Decoding costs about 10 us a sample in the twin.
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
