"""URLs of the API of credentials."""

from __future__ import annotations

from django.urls import path

from webadmin.accounts.api import CredentialsView
from webadmin.accounts.credential_actions import EXPIRE, REVOKE, ROTATE
from webadmin.base.actions.api import action_path

urlpatterns = [
    path("credentials", CredentialsView.as_view(), name="credentials"),
    action_path(ROTATE, "credentials/rotate"),
    action_path(EXPIRE, "credentials/expire"),
    action_path(REVOKE, "credentials/revoke"),
]
