"""The plain twin of jump consistent hash."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

MULTIPLIER = 2862933555777941757


def jump_hash(key: int, buckets: int) -> int:
    """See ``engine.placement.jump_hash``; the arguments are already checked."""
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * MULTIPLIER + 1) % (1 << 64)
        # The division comes first and is that of doubles: every language must round alike.
        following = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def jump_hash_array(keys: Iterable[int], buckets: int) -> npt.NDArray[np.int32]:
    """See ``engine.placement.jump_hash``."""
    return np.array([jump_hash(int(key), buckets) for key in keys], np.int32)
