"""Cache of the object stores of this process: creating an S3 client takes a third of a second of CPU time."""

from __future__ import annotations

import functools

from engine.storage import ObjectStore, open_store

CACHED_STORES_MAX = 16


@functools.lru_cache(maxsize=CACHED_STORES_MAX)
def object_store(url: str) -> ObjectStore:
    """Return the store at ``url``, shared by all tasks; it is thread-safe."""
    return open_store(url)
