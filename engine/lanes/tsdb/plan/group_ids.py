"""The hash by which a tenant's intervals are named and shared out."""

from __future__ import annotations

_OFFSET = 2166136261
_PRIME = 16777619
_MASK = 0xFFFFFFFF


def fnv1a_32(text: str) -> int:
    """Return FNV-1a of 32 bits over the UTF-8 bytes."""
    value = _OFFSET
    for byte in text.encode("utf-8", "surrogatepass"):
        value = (value ^ byte) * _PRIME & _MASK
    return value


def group_id(tenant: str, start_ms: int, end_ms: int) -> int:
    """Return the id of a tenant's interval: the hash of tenant, start and end, nothing between them."""
    return fnv1a_32(f"{tenant}{start_ms}{end_ms}")
