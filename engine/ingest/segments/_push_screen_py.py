"""The check of pushed profiles in pure Python: no bytes are known to pass."""

from __future__ import annotations


def is_in_order(
    message: bytes,
    *,
    oldest_ns: int,
    newest_ns: int,
    samples_max: int,
    sample_labels_max: int,
    stack_frames_max: int,
    symbol_bytes_max: int,
) -> bool:
    """Return False: use the full validation."""
    return False
