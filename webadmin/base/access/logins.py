"""Hooks of django-axes, which locks out accounts and addresses after failed logins."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse


def client_address(request: HttpRequest) -> str:
    """Return the address that a request came from.

    Behind ``PROXY_COUNT`` proxies it is the address that the outermost proxy recorded: that many entries from the right
    of X-Forwarded-For. Entries further left are set by the client and cannot be trusted.
    """
    forwarded = [part.strip() for part in request.headers.get("X-Forwarded-For", "").split(",") if part.strip()]
    proxies: int = settings.PROXY_COUNT
    if proxies and len(forwarded) >= proxies:
        return forwarded[-proxies]
    return str(request.META.get("REMOTE_ADDR", ""))


def answer_locked_out(request: HttpRequest, *args: Any, **options: Any) -> HttpResponse:
    """Reject a login of a locked account or address; the answer does not depend on whether the password is right."""
    seconds = int(settings.AXES_COOLOFF_TIME.total_seconds())
    text = f"Too many failed logins. Try again in {seconds // 60} minutes, or ask an operator for axes_reset.\n"
    return HttpResponse(text, status=429, content_type="text/plain", headers={"Retry-After": str(seconds)})
