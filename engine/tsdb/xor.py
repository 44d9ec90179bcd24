"""Float chunks (encoding 1): times and values as differences from the sample before."""

from __future__ import annotations

from engine.tsdb._xor_py import Times, ValueBits, decode_xor, encode_xor

__all__ = ["Times", "ValueBits", "decode_xor", "encode_xor"]
