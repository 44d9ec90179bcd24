"""CRC32C (Castagnoli), the checksum of profile objects and Prometheus blocks."""

from __future__ import annotations

import google_crc32c

_STEP_BYTES = 1 << 20


def crc32c(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC32C of ``data``, continuing from ``value`` (the CRC of the bytes before it)."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(value, data))
    # The library accepts only bytes; a memory-mapped section of gigabytes is copied piece by piece.
    for start in range(0, len(data), _STEP_BYTES):
        value = int(google_crc32c.extend(value, bytes(data[start : start + _STEP_BYTES])))
    return value
