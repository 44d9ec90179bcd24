"""Object storage: the interface ``ObjectStore`` and its implementations for local folders and S3.

``open_store(url)`` accepts ``file:///path`` (or a path) and ``s3://bucket/prefix?endpoint=…&region=…``. Credentials for
S3 are never part of the URL; boto3 finds them in its standard sources (environment, files, instance metadata).
"""

from engine.storage.model import (
    ConditionalCreate,
    ConditionRefused,
    InvalidKey,
    InvalidRange,
    InvalidStoreUrl,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    ObjectWriter,
    StorageError,
)
from engine.storage.opening import cached_store, is_local, open_store, resolve_links

__all__ = [
    "ConditionRefused",
    "ConditionalCreate",
    "InvalidKey",
    "InvalidRange",
    "InvalidStoreUrl",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStore",
    "ObjectWriter",
    "StorageError",
    "cached_store",
    "is_local",
    "open_store",
    "resolve_links",
]
