"""Authenticate requests by ``Authorization: Bearer lw_…`` as a worker credential."""

from __future__ import annotations

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from webadmin.base.access.errors import CredentialRefused
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.scopes import SCOPE_POLL, is_unconfined
from webadmin.base.access.services import check_worker_credential


class WorkerAuthentication(BaseAuthentication):
    """Bearer authentication; sets ``request.user`` to the WorkerCredential of the caller."""

    def authenticate(self, request: Request) -> tuple[WorkerCredential, None] | None:
        scheme, _, wire_form = get_authorization_header(request).decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        try:
            return check_worker_credential(wire_form=wire_form.strip(), at=timezone.now()), None
        except CredentialRefused as error:
            raise AuthenticationFailed(str(error), code=CredentialRefused.code) from error

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class MayPoll(BasePermission):
    """The caller is a worker whose credential has the scope ``jobs:poll``."""

    message = f"the credential lacks the scope {SCOPE_POLL}"
    code = "scope_missing"

    def has_permission(self, request: Request, view: object) -> bool:
        user = request.user
        return isinstance(user, WorkerCredential) and user.has_scope(SCOPE_POLL) and is_unconfined(user)
