"""From a URL to an object store."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from engine.storage.keys import check_key
from engine.storage.local import LocalStore
from engine.storage.model import InvalidKey, InvalidStoreUrl, ObjectStore
from engine.storage.retrying import Retrying

FORMS = "use file:///folder, a folder's path, or s3://bucket/prefix?endpoint=URL&region=NAME"
ENDPOINT_VARIABLES = ("OBJECT_STORE_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")

STORES_KEPT = 16


def open_store(url: str, *, retrying: Retrying | None = None) -> ObjectStore:
    """Open the store at ``url``; nothing is asked of it yet. ``retrying`` replaces the usual patience (S3 only).

    Endpoint and region of S3 come from the URL's query, else from the environment (``OBJECT_STORE_ENDPOINT``,
    ``AWS_ENDPOINT_URL_S3``, ``AWS_ENDPOINT_URL``; ``AWS_REGION``, ``AWS_DEFAULT_REGION``). InvalidStoreUrl says what is
    wrong with a URL.
    """
    if is_local(url):
        return LocalStore(_folder(url))
    # boto3 takes a third of a second to import; a folder needs none of it.
    from engine.storage.s3 import S3Location, S3Store

    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise InvalidStoreUrl(f"{url!r} is no object store: {FORMS}")
    query = _query(url)
    location = S3Location(
        bucket=parts.netloc,
        prefix=_prefix(url, unquote(parts.path)),
        endpoint=query.get("endpoint") or _first_set(ENDPOINT_VARIABLES),
        region=query.get("region") or _first_set(REGION_VARIABLES) or "us-east-1",
    )
    return S3Store(location, url, retrying)


@functools.lru_cache(maxsize=STORES_KEPT)
def kept_store(url: str) -> ObjectStore:
    """Return this process's store at ``url``, the same one each time: connections are dear. Nobody closes it."""
    return open_store(url)


def is_local(url: str) -> bool:
    """Tell whether only this machine can see the store at ``url``."""
    return "://" not in url or url.startswith("file://")


def _folder(url: str) -> Path:
    if not url:
        raise InvalidStoreUrl(f"the object store's URL is empty: {FORMS}")
    if "://" not in url:
        return Path(url)
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise InvalidStoreUrl(f"{url!r} is no folder of this machine: {FORMS}")
    return Path(unquote(parts.path))


def _query(url: str) -> dict[str, str]:
    query = {name: values[-1] for name, values in parse_qs(urlsplit(url).query, keep_blank_values=True).items()}
    unknown = sorted(query.keys() - {"endpoint", "region"})
    if unknown:
        raise InvalidStoreUrl(f"{url!r}: unknown setting {unknown[0]!r}: {FORMS}")
    return query


def _prefix(url: str, path: str) -> str:
    prefix = path.strip("/")
    if not prefix:
        return ""
    try:
        check_key("open", prefix)
    except InvalidKey as error:
        raise InvalidStoreUrl(f"{url!r}: bad prefix: {error.reason}") from error
    return prefix + "/"


def _first_set(variables: tuple[str, ...]) -> str | None:
    return next((value for variable in variables if (value := os.environ.get(variable))), None)
