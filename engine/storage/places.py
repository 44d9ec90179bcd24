"""Where a store's objects lie, so that two stores can be compared: the same, one within the other, or apart."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.storage.opening import folder_of, is_local
from engine.storage.s3_location import location_of

ALL_BUCKETS = "s3://*"
"""As a root: every bucket of every endpoint, as ``file:///`` is every folder."""
AWS = "https://s3.amazonaws.com"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, or a prefix of a bucket.

    ``server`` is empty for folders and ``*`` for all buckets; ``parts`` are the components of the path, of a bucket
    its name first. Regions do not matter: an endpoint has one bucket of a name.
    """

    server: str
    parts: tuple[str, ...]

    def contains(self, other: Place) -> bool:
        """Return whether ``other`` is this place or lies within it, by whole components: ``a/b`` is not in ``a/bc``."""
        if self.server == "*":
            return bool(other.server)
        return self.server == other.server and other.parts[: len(self.parts)] == self.parts

    def overlaps(self, other: Place) -> bool:
        """Return whether one of both is, or lies within, the other."""
        return self.contains(other) or other.contains(self)


def place_of(url: str) -> Place:
    """Return where the store at ``url`` keeps its objects. Raises InvalidStoreUrl."""
    if url == ALL_BUCKETS:
        return Place("*", ())
    if is_local(url):
        return Place("", tuple(part for part in os.path.abspath(folder_of(url)).split("/") if part))
    location = location_of(url)
    return Place(_server(location.endpoint or AWS), (location.bucket, *(p for p in location.prefix.split("/") if p)))


def _server(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if (parts.hostname or "").endswith(".amazonaws.com"):
        return AWS  # a name of a bucket is one bucket there, whatever the region
    port = parts.port or _PORTS.get(parts.scheme, 0)
    return f"{parts.scheme}://{parts.hostname or ''}:{port}{parts.path.rstrip('/')}"
