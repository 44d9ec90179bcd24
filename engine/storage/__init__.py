"""Object storage: one small interface, a local folder and S3 behind it.

``open_store(url)`` takes ``file:///path`` (or a bare path) and ``s3://bucket/prefix?endpoint=…&region=…``.
"""

from engine.storage.model import ConditionalCreate, ObjectInfo, ObjectNotFound, ObjectStore, ObjectWriter, StorageError
from engine.storage.opening import open_store

__all__ = [
    "ConditionalCreate",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStore",
    "ObjectWriter",
    "StorageError",
    "open_store",
]
