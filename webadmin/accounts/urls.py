"""URLs of the API of credentials."""

from __future__ import annotations

from django.urls import path

from webadmin.accounts import api

urlpatterns = [
    path("credentials", api.CredentialsView.as_view(), name="credentials"),
    path("credentials/rotate", api.RotateView.as_view(), name="rotate-credential"),
    path("credentials/expire", api.ExpireView.as_view(), name="expire-credential"),
    path("credentials/revoke", api.RevokeView.as_view(), name="revoke-credential"),
]
