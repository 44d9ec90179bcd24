"""Scopes of credentials: ``blocks:add`` permits an action, ``tenant:acme`` limits it to a tenant's data.

A credential without any ``tenant:…`` is valid for no tenant in requests about one tenant (queries), and for all tenants
where the platform's own processes write for all of them (adding segments). ``tenant:*`` means all tenants in both
cases. Polling, reading the schedule and operating concern the whole platform: a credential that lists tenants by name
may do none of these, whatever other scopes it has; otherwise one tenant could read and control the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.models import WorkerCredential

SCOPE_ADD_BLOCKS = "blocks:add"
SCOPE_QUERY_BLOCKS = "blocks:query"
SCOPE_OPERATE = "operate"
SCOPE_MANAGE_CREDENTIALS = "credentials:manage"
SCOPE_READ_TABLES = "tables:read"
SCOPE_WRITE_TABLES = "tables:write"
SCOPE_READ_CATALOG = "catalog:read"
SCOPE_WRITE_CATALOG = "catalog:write"
SCOPE_POLL = "jobs:poll"
SCOPE_PUSH = "profiles:push"
SCOPE_QUERY = "profiles:query"
SCOPE_READ = "read"
SCOPES = (
    *(SCOPE_POLL, SCOPE_PUSH, SCOPE_QUERY, SCOPE_ADD_BLOCKS, SCOPE_QUERY_BLOCKS, SCOPE_READ, SCOPE_OPERATE),
    *(SCOPE_READ_TABLES, SCOPE_WRITE_TABLES, SCOPE_READ_CATALOG, SCOPE_WRITE_CATALOG, SCOPE_MANAGE_CREDENTIALS),
)
TENANT_PREFIX = "tenant:"
ANY_TENANT = "*"


def unknown_scopes(scopes: Iterable[str]) -> list[str]:
    """Return the scopes that are neither in SCOPES nor ``tenant:NAME`` or ``tenant:*``.

    A misspelt tenant scope must be rejected: a credential without one is valid for the whole platform.
    """
    return [scope for scope in scopes if scope not in SCOPES and not _names_tenant(scope)]


def _names_tenant(scope: str) -> bool:
    prefix, found, tenant = scope.partition(":")
    if f"{prefix}{found}" != TENANT_PREFIX:
        return False
    try:
        return tenant == ANY_TENANT or bool(check_tenant(tenant))
    except BadBlockName:
        return False


def credential_of(request: Request) -> WorkerCredential:
    """Return the credential that ``WorkerAuthentication`` found for a request."""
    return cast("WorkerCredential", request.user)


def listed_tenants(credential: WorkerCredential) -> frozenset[str]:
    """Return the tenants a credential lists; ``*`` is among them if it is valid for all."""
    return frozenset(
        scope.removeprefix(TENANT_PREFIX) for scope in credential.scopes if scope.startswith(TENANT_PREFIX)
    )


def is_unconfined(credential: WorkerCredential) -> bool:
    """Return whether a credential is not confined to tenants by name."""
    return listed_tenants(credential) <= {ANY_TENANT}


def is_operator(credential: WorkerCredential) -> bool:
    """Return whether a credential may operate the whole platform; only such a one is shown server paths."""
    return credential.has_scope(SCOPE_OPERATE) and is_unconfined(credential)


def confinement_reason(credential: WorkerCredential) -> str:
    """Return why a credential confined to tenants is rejected for a resource of all tenants."""
    tenants = sorted(listed_tenants(credential) - {ANY_TENANT})
    plural = "s" if len(tenants) > 1 else ""
    return f"the credential is for tenant{plural} {', '.join(tenants)} only, and this is about all of them"


class _HasScope(BasePermission):
    """The caller's credential has the scope of the class."""

    scope: str
    code = "scope_missing"

    @property
    def message(self) -> str:
        return f"the credential lacks the scope {self.scope}"

    def has_permission(self, request: Request, view: object) -> bool:
        return isinstance(request.user, WorkerCredential) and request.user.has_scope(self.scope)


class MayAddBlocks(_HasScope):
    """The caller may register blocks."""

    scope = SCOPE_ADD_BLOCKS


class MayQueryBlocks(_HasScope):
    """The caller may query which blocks hold data of its tenants."""

    scope = SCOPE_QUERY_BLOCKS


class MayReadTables(_HasScope):
    """The caller may read the state of its tenants' tables."""

    scope = SCOPE_READ_TABLES


class MayWriteTables(_HasScope):
    """The caller may create its tenants' tables and register files in them."""

    scope = SCOPE_WRITE_TABLES


class _Unconfined(_HasScope):
    """Base class: the credential has the scope of the class and is not confined to tenants by name."""

    _confined = ""

    @property
    def message(self) -> str:
        return self._confined or super().message

    def has_permission(self, request: Request, view: object) -> bool:
        if not super().has_permission(request, view):
            return False
        credential = credential_of(request)
        self._confined = "" if is_unconfined(credential) else confinement_reason(credential)
        return not self._confined


class MayOperate(_Unconfined):
    """The caller may operate the schedule, as an operator does in the admin."""

    scope = SCOPE_OPERATE


class MayManageCredentials(_Unconfined):
    """The caller may create, rotate, expire and revoke credentials, of any scope."""

    scope = SCOPE_MANAGE_CREDENTIALS
