"""Jump consistent hash in pure Python."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MULTIPLIER = 2862933555777941757


def jump_hash(key: int, buckets: int) -> int:
    """See ``engine.placement.jump_hash``; the caller validates the arguments."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * MULTIPLIER + 1) % (1 << 64)
        # Double-precision division comes first, so that every language rounds equally.
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def jump_hash_array(keys: Iterable[int], buckets: int) -> npt.NDArray[np.int32]:
    """See ``engine.placement.jump_hash``."""
    return np.array([jump_hash(int(key), buckets) for key in keys], np.int32)
