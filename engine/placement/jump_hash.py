"""Jump consistent hash: with one more bucket, a key keeps its bucket or moves to the new one.

``jump_hash(key, buckets)`` returns the bucket of one unsigned 64-bit key; ``jump_hash_array(keys, buckets)`` those of
an array, without the GIL. Cost: about ln n multiplications and divisions per key. Both raise BadBuckets unless
``1 <= buckets <= BUCKETS_MAX``, and OverflowError for a key that is not an unsigned 64-bit number.

``LITHIFY_PURE=1`` selects the pure-Python implementation, which type checkers use as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.core.kernels import load_kernel
from engine.placement.errors import BadBuckets

BUCKETS_MAX = (1 << 31) - 1
"""With more buckets, a step could overflow a signed 64-bit number."""
KEY_MAX = (1 << 64) - 1

if TYPE_CHECKING:
    from engine.placement._jump_hash_py import jump_hash as _bucket_of
    from engine.placement._jump_hash_py import jump_hash_array as _buckets_of
else:
    _bucket_of, _buckets_of = load_kernel("engine.placement._jump_hash", "jump_hash", "jump_hash_array")

__all__ = ["BUCKETS_MAX", "jump_hash", "jump_hash_array"]


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket of one key, from 0 to ``buckets - 1``."""
    _check(buckets)
    if not 0 <= key <= KEY_MAX:
        raise OverflowError(f"key {key} is not an unsigned 64-bit number")
    return _bucket_of(key, buckets)


def jump_hash_array(keys: npt.ArrayLike, buckets: int) -> npt.NDArray[np.int32]:
    """Return the bucket of each key."""
    _check(buckets)
    return _buckets_of(np.ascontiguousarray(keys, dtype=np.uint64), buckets)


def _check(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise BadBuckets(f"expected 1 to {BUCKETS_MAX} buckets, found {buckets}")
