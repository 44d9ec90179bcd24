"""Entries of the series section of an index, many at a time, as arrays."""

from __future__ import annotations

from engine.tsdb._series_entries_py import decode_series, encode_series

__all__ = ["decode_series", "encode_series"]
