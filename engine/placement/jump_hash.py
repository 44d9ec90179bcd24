"""Jump consistent hash: a key's bucket of ``n``, such that with one bucket more a key stays or goes to the new one.

``jump_hash(key, buckets)`` returns the bucket of one unsigned 64-bit key; ``jump_hash_array(keys, buckets)`` those of
an array, without the interpreter's lock. Cost: about ln n steps of a multiplication and a division per key. Both raise
BadBuckets unless ``1 <= buckets <= BUCKETS_MAX``, and OverflowError for a key that is no unsigned 64-bit number.

``LITHIFY_PURE=1`` chooses the plain twin, which is also what type checkers see.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from engine.placement.errors import BadBuckets

BUCKETS_MAX = (1 << 31) - 1
"""With more, a step could leave the range of a signed 64-bit number."""
KEY_MAX = (1 << 64) - 1

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.placement import _jump_hash_py as _implementation

    IMPLEMENTATION = "python"
else:
    try:
        from engine.placement import _jump_hash as _implementation

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.placement import _jump_hash_py as _implementation

        IMPLEMENTATION = "python"

__all__ = ["BUCKETS_MAX", "IMPLEMENTATION", "jump_hash", "jump_hash_array"]


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket of one key, from 0 to ``buckets - 1``."""
    _check(buckets)
    if not 0 <= key <= KEY_MAX:
        raise OverflowError(f"key {key} is no unsigned 64-bit number")
    return _implementation.jump_hash(key, buckets)


def jump_hash_array(keys: npt.ArrayLike, buckets: int) -> npt.NDArray[np.int32]:
    """Return the bucket of each key."""
    _check(buckets)
    return _implementation.jump_hash_array(np.ascontiguousarray(keys, dtype=np.uint64), buckets)


def _check(buckets: int) -> None:
    if not 1 <= buckets <= BUCKETS_MAX:
        raise BadBuckets(f"{buckets} buckets: give at least 1 and at most {BUCKETS_MAX}")
