"""The bearer token of monitoring systems: for ``/metrics``, ``/progressz``, and the schema of the API."""

from __future__ import annotations

import hmac

from django.conf import settings
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

PREFIX = "Bearer "


def has_metrics_token(authorization: str) -> bool:
    """Return whether an ``Authorization`` header has METRICS_TOKEN as its bearer token."""
    given = authorization.removeprefix(PREFIX).strip().encode()
    return authorization.startswith(PREFIX) and hmac.compare_digest(given, settings.METRICS_TOKEN.encode())


class MayReadSchema(BasePermission):
    """The caller is signed in to the admin, or has METRICS_TOKEN."""

    message = "sign in to the admin, or send METRICS_TOKEN as a bearer token"
    code = "not_authenticated"

    def has_permission(self, request: Request, view: object) -> bool:
        if getattr(request.user, "is_staff", False):
            return True
        return has_metrics_token(request.headers.get("Authorization", ""))
