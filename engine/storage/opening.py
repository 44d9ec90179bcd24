"""Opening of object stores by URL."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.storage.local import LocalStore
from engine.storage.model import InvalidStoreUrl, ObjectStore
from engine.storage.retry import RetryPolicy
from engine.storage.s3_location import FORMS, parse_s3_url

CACHED_STORES_MAX = 16


def open_store(url: str, *, retry_policy: RetryPolicy | None = None) -> ObjectStore:
    """Return the store at ``url`` without sending a request. ``retry_policy`` applies to S3 only.

    Endpoint and region of S3 come from the URL's query, else from the environment (``OBJECT_STORE_ENDPOINT``,
    ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``; ``AWS_REGION``, ``AWS_DEFAULT_REGION``). Raises InvalidStoreUrl.
    """
    if is_local(url):
        return LocalStore(folder_of(url))
    # Importing boto3 takes a third of a second; local folders do not need it.
    from engine.storage.s3 import S3Store

    return S3Store(parse_s3_url(url), url, retry_policy)


@functools.lru_cache(maxsize=CACHED_STORES_MAX)
def cached_store(url: str) -> ObjectStore:
    """Return the shared store of this process at ``url``, which reuses connections; callers must not close it."""
    return open_store(url)


def is_local(url: str) -> bool:
    """Return whether the store at ``url`` is a folder of this machine."""
    return "://" not in url or url.startswith("file://")


def resolve_links(url: str) -> str:
    """Return the URL of the same store, with symbolic links in the path of its folder resolved.

    Only for URLs from the settings of the installation: their links are under the operator's control.
    """
    if not is_local(url):
        return url
    folder = os.path.abspath(folder_of(url))
    resolved = os.path.realpath(folder)
    return url if resolved == folder else Path(resolved).as_uri()


def folder_of(url: str) -> Path:
    """Return the folder of a path or ``file://`` URL. Raises InvalidStoreUrl."""
    if not url:
        raise InvalidStoreUrl(f"the object store's URL is empty: {FORMS}")
    if "://" not in url:
        return Path(url)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url!r} is not a folder of this machine: {FORMS}")
    return Path(unquote(parts.path))
