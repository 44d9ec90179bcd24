"""From a URL to an object store."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.storage.local import LocalStore
from engine.storage.model import InvalidStoreUrl, ObjectStore
from engine.storage.retrying import Retrying
from engine.storage.s3_location import FORMS, location_of

STORES_KEPT = 16


def open_store(url: str, *, retrying: Retrying | None = None) -> ObjectStore:
    """Open the store at ``url``; nothing is asked of it yet. ``retrying`` replaces the usual patience (S3 only).

    Endpoint and region of S3 come from the URL's query, else from the environment (``OBJECT_STORE_ENDPOINT``,
    ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``; ``AWS_REGION``, ``AWS_DEFAULT_REGION``). InvalidStoreUrl says what is
    wrong with a URL.
    """
    if is_local(url):
        return LocalStore(folder_of(url))
    # boto3 takes a third of a second to import; a folder needs none of it.
    from engine.storage.s3 import S3Store

    return S3Store(location_of(url), url, retrying)


@functools.lru_cache(maxsize=STORES_KEPT)
def kept_store(url: str) -> ObjectStore:
    """Return this process's store at ``url``, the same one each time: connections are dear. Nobody closes it."""
    return open_store(url)


def is_local(url: str) -> bool:
    """Tell whether only this machine can see the store at ``url``."""
    return "://" not in url or url.startswith("file://")


def resolve_links(url: str) -> str:
    """Return the URL of the same store without symbolic links in the path of its folder.

    For the URLs of an installation's own settings only: nobody but its operator decides where these links lead.
    """
    if not is_local(url):
        return url
    folder = os.path.abspath(folder_of(url))
    resolved = os.path.realpath(folder)
    return url if resolved == folder else Path(resolved).as_uri()


def folder_of(url: str) -> Path:
    """Return the folder that a path or a ``file://`` URL names. Raises InvalidStoreUrl."""
    if not url:
        raise InvalidStoreUrl(f"the object store's URL is empty: {FORMS}")
    if "://" not in url:
        return Path(url)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url!r} is no folder of this machine: {FORMS}")
    return Path(unquote(parts.path))
