"""Codec of float chunks (encoding 1): times and values as differences from the previous sample.

Selects the compiled implementation if it is built, or pure Python with ``LITHIFY_PURE=1``, which decodes a sample in
about 10 us.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.core.kernels import load_kernel
from engine.formats.prometheus.chunks._xor_py import Times, ValueBits

if TYPE_CHECKING:
    from engine.formats.prometheus.chunks._xor_py import decode_xor, encode_xor
else:
    decode_xor, encode_xor = load_kernel("engine.formats.prometheus.chunks._xor", "decode_xor", "encode_xor")

__all__ = ["Times", "ValueBits", "decode_xor", "encode_xor"]
