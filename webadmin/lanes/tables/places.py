"""Where tables of tenants may lie that create them by themselves."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings

from engine.storage import is_local
from engine.storage.places import place_of
from webadmin.lanes.tables.errors import TableRefused


def place_of_tenant(tenant: str) -> str:
    """Return the URL below which a tenant may place tables."""
    parts = urlsplit(settings.TABLES_URL)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{tenant}").geturl()


def shown_place_of_tenant(tenant: str) -> str:
    """Return what a tenant is shown of its place: a URL in S3, and no path of the server."""
    return f"{tenant}/ of TABLES_URL" if is_local(settings.TABLES_URL) else f"{place_of_tenant(tenant)}/"


def check_place_of_tenant(url: str, tenant: str) -> None:
    """Raise TableRefused unless a place is the tenant's own: in the same store, below its folder."""
    below, place = place_of(place_of_tenant(tenant)), place_of(url)
    if place == below or not below.contains(place):
        raise TableRefused(f"tables of {tenant} are placed below {shown_place_of_tenant(tenant)}")
