"""CRC32C (Castagnoli), the checksum of every part of a profile object."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes, value: int = 0) -> int:
    """Return the CRC32C of ``data``, continuing from ``value`` (the CRC of the bytes before it)."""
    return int(google_crc32c.extend(value, data))
