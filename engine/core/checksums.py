"""CRC32C (Castagnoli), the checksum of every part of profile objects and of Prometheus blocks."""

from __future__ import annotations

import google_crc32c

_STEP_BYTES = 1 << 20


def crc32c(data: bytes | memoryview, value: int = 0) -> int:
    """Return the CRC32C of ``data``, continuing from ``value`` (the CRC of the bytes before it)."""
    if isinstance(data, bytes):
        return int(google_crc32c.extend(value, data))
    # The library takes bytes only: a mapped section of gigabytes must not be copied at once.
    for start in range(0, len(data), _STEP_BYTES):
        value = int(google_crc32c.extend(value, bytes(data[start : start + _STEP_BYTES])))
    return value
