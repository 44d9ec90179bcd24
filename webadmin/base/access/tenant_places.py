"""Where tenants may place data by themselves: below a folder of their own in TABLES_URL."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from engine.storage import is_local


def place_of_tenant(tenant: str) -> str:
    """Return the URL below which a tenant may place data."""
    parts = urlsplit(settings.TABLES_URL)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{tenant}").geturl()


def shown_place_of_tenant(tenant: str) -> str:
    """Return what a tenant is shown of its place: a URL in S3, and no path of the server."""
    return f"{tenant}/ of TABLES_URL" if is_local(settings.TABLES_URL) else f"{place_of_tenant(tenant)}/"
