"""Where tables of tenants may lie that create them by themselves, and whether a place is another or within it."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from django.conf import settings

from webadmin.timeline.errors import TableRefused


def place_of_tenant(tenant: str) -> str:
    """Return the URL below which a tenant may place tables."""
    parts = urlsplit(settings.TABLES_URL)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{tenant}").geturl()


def check_place(url: str, tenant: str) -> None:
    """Raise TableRefused unless a place is the tenant's own: in the same store, below its folder."""
    below = place_of_tenant(tenant)
    parts = unquote(urlsplit(url).path).split("/")
    is_same_store = urlsplit(url).query == urlsplit(below).query
    if ".." in parts or "." in parts or not is_same_store or not is_within(url, below) or is_within(below, url):
        raise TableRefused(f"tables of {tenant} are placed below {below}/")


def is_within(url: str, other: str) -> bool:
    """Say whether one place is the other, or lies in it."""
    here, there = urlsplit(url), urlsplit(other)
    same = (here.scheme or "file", here.netloc) == (there.scheme or "file", there.netloc)
    return same and (_path(url) + "/").startswith(_path(other) + "/")


def _path(url: str) -> str:
    return unquote(urlsplit(url).path).rstrip("/")
