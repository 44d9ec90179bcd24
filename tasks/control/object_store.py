"""The object stores of this process: a client of S3 takes a third of a second of computing to make."""

from __future__ import annotations

import functools

from engine.storage import ObjectStore, open_store

CACHED_STORES_MAX = 16


@functools.lru_cache(maxsize=CACHED_STORES_MAX)
def object_store(url: str) -> ObjectStore:
    """Return the store at ``url``, the same one for all tasks; they may use it from several threads."""
    return open_store(url)
