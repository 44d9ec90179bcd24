"""Protection against cross-site request forgery: browsers add stored Basic credentials to requests of other sites.

A form or script of another site can send GET and simple kinds of POST without a CORS preflight. Requests that change
anything must therefore not come from another origin, and JSON bodies must be declared as JSON, which requires a
preflight.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from rest_framework.exceptions import PermissionDenied, UnsupportedMediaType

JSON = "application/json"
OWN_SITES = ("", "same-origin", "none")
"""Values of ``Sec-Fetch-Site`` for requests of our own pages and for addresses that the user entered."""


def check_origin(request: HttpRequest) -> None:
    """Raise PermissionDenied (403) if a page of another origin made a browser send this. SDKs send no origin."""
    origin = request.headers.get("Origin", "")
    if origin and origin not in settings.CSRF_TRUSTED_ORIGINS and not _is_own(origin, request):
        raise PermissionDenied(f"requests of pages from {origin[:200]!r} are refused: list it in CSRF_TRUSTED_ORIGINS")
    if not origin and request.headers.get("Sec-Fetch-Site", "") not in OWN_SITES:
        raise PermissionDenied("requests of pages from other sites are refused")


def check_json(request: HttpRequest) -> None:
    """Raise UnsupportedMediaType (415) if the body is not declared as JSON."""
    if request.content_type != JSON:
        raise UnsupportedMediaType(request.content_type or "none", f"send the body as Content-Type {JSON}")


def _is_own(origin: str, request: HttpRequest) -> bool:
    parts = urlsplit(origin)
    try:
        return parts.scheme == request.scheme and parts.netloc == request.get_host()
    except DisallowedHost:
        return False
