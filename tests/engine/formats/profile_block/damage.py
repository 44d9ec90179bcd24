"""Ways to damage bytes, and the one promise about reading them: a typed error, or the same answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from engine.core.checksums import crc32c
from engine.core.errors import BadObject


def truncations(data: bytes, step: int = 1) -> Iterator[bytes]:
    """Yield every proper prefix (or every ``step``-th)."""
    for end in range(0, len(data), step):
        yield data[:end]


def flips(data: bytes, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield the data with one byte changed, and where."""
    for offset in range(0, len(data), step):
        yield offset, data[:offset] + bytes([data[offset] ^ 0x5A]) + data[offset + 1 :]


def refuses(decode: Callable[[bytes], Any], data: bytes, section: str) -> bool:
    """Say whether decoding raises a BadObject of this section; any other error passes through."""
    found = ""
    try:
        decode(data)
    except BadObject as error:
        found = error.section
    assert found in ("", section)
    return found == section


def patched(data: bytes, offset: int, new: bytes) -> bytes:
    """Replace bytes without changing the length."""
    return data[:offset] + new + data[offset + len(new) :]


def with_crc(data: bytes, start: int, end: int) -> bytes:
    """Repair the CRC32C that follows ``start``..``end``, so that only the damage before it is found."""
    return patched(data, end, crc32c(data[start:end]).to_bytes(4, "big"))
