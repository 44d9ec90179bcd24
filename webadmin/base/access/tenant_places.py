"""Locations of tenants' own tables: a folder per tenant in TABLES_URL; and how these are shown to tenants."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from django.conf import settings

from engine.storage import is_local
from engine.storage.locations import locate_store

ABOVE, ELSEWHERE = "a folder above TABLES_URL", "a folder outside of the tenant's place"
_LOCAL_URL = re.compile(r"file://[A-Za-z0-9_.~%/-]*[A-Za-z0-9_~%/-]")
_LOCAL_PATH = re.compile(r"'/[^'\n]*'")
"""A quoted absolute path in an operating system error."""


def place_of_tenant(tenant: str) -> str:
    """Return the URL below which a tenant may place data."""
    parts = urlsplit(str(settings.TABLES_URL))
    return parts._replace(path=f"{parts.path.rstrip('/')}/{tenant}").geturl()


def shown_place_of_tenant(tenant: str) -> str:
    """Return the location that a tenant is shown: a URL in S3, without paths of the server."""
    return f"{tenant}/ of TABLES_URL" if is_local(settings.TABLES_URL) else f"{place_of_tenant(tenant)}/"


def without_server_paths(text: str, tenant: str) -> str:
    """Return a text without server paths, for a tenant ("": for a user without one).

    URLs of local folders become paths relative to TABLES_URL, and quoted paths are removed.
    """
    return _LOCAL_URL.sub(lambda found: _shown_url(found[0], tenant), _LOCAL_PATH.sub("a file of the server", text))


def _shown_url(url: str, tenant: str) -> str:
    tables, place = locate_store(settings.TABLES_URL), locate_store(url)
    if place.contains(tables):
        return ABOVE
    below = place.parts[len(tables.parts) :]
    if tenant and tables.contains(place) and below[0] == tenant:
        return f"{'/'.join(below)} of TABLES_URL"
    return ELSEWHERE
