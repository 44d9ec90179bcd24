"""Locations of stores, which can be compared: equal, one inside the other, or disjoint."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.storage.opening import folder_of, is_local
from engine.storage.s3_location import parse_s3_url

ALL_BUCKETS = "s3://*"
"""The URL of a root that contains every bucket of every endpoint, as ``file:///`` contains every folder."""
AWS = "https://s3.amazonaws.com"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A folder or a prefix of a bucket.

    ``server`` is empty for folders and ``*`` for all buckets. ``parts`` are the components of the path; the first one
    of a bucket is its name. The region is not part of it: bucket names are unique per endpoint.
    """

    server: str
    parts: tuple[str, ...]

    def contains(self, other: StoreLocation) -> bool:
        """Return whether ``other`` is equal to this location or inside it; ``a/b`` does not contain ``a/bc``."""
        if self.server == "*":
            return bool(other.server)
        return self.server == other.server and other.parts[: len(self.parts)] == self.parts

    def overlaps(self, other: StoreLocation) -> bool:
        """Return whether one of the two locations contains the other."""
        return self.contains(other) or other.contains(self)


def locate_store(url: str) -> StoreLocation:
    """Return the location of the store at ``url``. Raises InvalidStoreUrl."""
    if url == ALL_BUCKETS:
        return StoreLocation("*", ())
    if is_local(url):
        return StoreLocation("", tuple(part for part in os.path.abspath(folder_of(url)).split("/") if part))
    location = parse_s3_url(url)
    folders = (part for part in location.prefix.split("/") if part)
    return StoreLocation(_server(location.endpoint or AWS), (location.bucket, *folders))


def _server(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if (parts.hostname or "").endswith(".amazonaws.com"):
        return AWS  # bucket names are unique across its regions
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return f"{parts.scheme}://{parts.hostname or ''}:{port}{parts.path.rstrip('/')}"
