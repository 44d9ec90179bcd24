"""Object storage: one small interface, a local folder and S3 behind it.

``open_store(url)`` takes ``file:///path`` (or a bare path) and ``s3://bucket/prefix?endpoint=…&region=…``.
Credentials for S3 are never part of the URL: they come from the places boto3 looks in (environment, files, instance).
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
from engine.storage.opening import is_local, kept_store, open_store, resolve_links

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
    "is_local",
    "kept_store",
    "open_store",
    "resolve_links",
]
