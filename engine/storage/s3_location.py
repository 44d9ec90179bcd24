"""Bucket, prefix, endpoint and region of a store in S3, from its URL and the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

from engine.storage.keys import check_key
from engine.storage.model import InvalidKey, InvalidStoreUrl

FORMS = "use file:///folder, a folder's path, or s3://bucket/prefix?endpoint=URL&region=NAME"
ENDPOINT_VARIABLES = ("OBJECT_STORE_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Location:
    """The location of a store; ``prefix`` is empty or ends with ``/``, no endpoint means that of AWS in the region."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"


def parse_s3_url(url: str) -> S3Location:
    """Return the location of an ``s3://`` URL; the environment supplies what it lacks. Raises InvalidStoreUrl."""
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.fragment or "@" in parts.netloc:
        raise InvalidStoreUrl(f"{url!r} is not an object store: {FORMS}")
    query = _query(url)
    return S3Location(
        bucket=parts.netloc,
        prefix=_prefix(url, unquote(parts.path)),
        endpoint=query.get("endpoint") or _first_set(ENDPOINT_VARIABLES),
        region=query.get("region") or _first_set(REGION_VARIABLES) or "us-east-1",
    )


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
        raise InvalidStoreUrl(f"{url!r}: invalid prefix: {error.reason}") from error
    return prefix + "/"


def _first_set(variables: tuple[str, ...]) -> str | None:
    return next((value for variable in variables if (value := os.environ.get(variable))), None)
