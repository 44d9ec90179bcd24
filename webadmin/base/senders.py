"""Identify the sender or reader of a request and its tenant, by bearer token or password of HTTP Basic.

A push may use a trusted header instead, a query may not. Credentials are cached, so that a push needs no database query
and pushes continue while the database is unavailable. A cached credential is rejected when its secret has expired or is
in the list of revoked secrets in the object store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import Error as AnyDatabaseError
from django.http import HttpRequest
from django.utils import timezone

from engine.core.errors import BadBlockName
from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.errors import CredentialRefused
from webadmin.base.access.revocations import Revocations
from webadmin.base.access.scopes import ANY_TENANT, SCOPE_PUSH, SCOPE_QUERY, listed_tenants
from webadmin.base.access.services import prove_credential
from webadmin.base.push_rejected import PushRejected

TENANT_HEADER = "X-Scope-OrgID"
ANONYMOUS = "anonymous"
"""The tenant of senders that name none, where bare headers are trusted."""
FRESH_S = 30.0
"""For how many seconds a cached credential is used without a query."""
STALE_S = 900.0
"""For how many seconds it is used while the database is unavailable."""
REMEMBERED_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Sender:
    """The tenant of pushed data, and the sender's name as in the audit log."""

    tenant: str
    actor: str


@dataclass(frozen=True, slots=True)
class Reader:
    """The tenants whose data is read, sorted, and the reader's name as in the audit log."""

    tenants: tuple[str, ...]
    actor: str


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    tenants: frozenset[str]
    scopes: frozenset[str]
    checked_at: float
    secret_hash: str
    valid_until: datetime | None

    def check_scope(self, scope: str) -> None:
        if scope not in self.scopes:
            raise PushRejected("permission_denied", "scope_missing", f"the credential lacks the scope {scope}")

    def check_tenant(self, tenant: str, verb: str) -> None:
        if tenant not in self.tenants and ANY_TENANT not in self.tenants:
            message = f"the credential does not {verb} for tenant {tenant!r}"
            raise PushRejected("permission_denied", "tenant_not_allowed", message)


class Senders:
    """Identify senders; one per process and list of revocations.

    Without ``revocations`` a cached credential is not used while the database is unavailable: queries need it anyway.
    """

    def __init__(self, revocations: Revocations | None = None) -> None:
        self._revocations = revocations
        self._known: dict[bytes, _Known] = {}

    def identify(self, request: HttpRequest) -> Sender:
        """Return the sender. Raises PushRejected with ``unauthenticated``, ``permission_denied`` or ``unavailable``."""
        header = request.headers.get(TENANT_HEADER, "")
        authorization = request.headers.get("Authorization", "")
        if not authorization:
            return _trusted(header)
        known = self._check(_wire_form(authorization))
        known.check_scope(SCOPE_PUSH)
        return Sender(_tenant_of(known, header), f"credential:{known.name}")

    def identify_reader(self, request: HttpRequest) -> Reader:
        """Return the reader and its tenants, joined by ``|`` in the header. Raises PushRejected as ``identify`` does.

        Reading profiles always requires a credential, even where bare headers are trusted for pushes.
        """
        authorization = request.headers.get("Authorization", "")
        if not authorization:
            raise _no_credential(SCOPE_QUERY)
        known = self._check(_wire_form(authorization))
        known.check_scope(SCOPE_QUERY)
        header = request.headers.get(TENANT_HEADER, "")
        tenants = sorted({_valid(part) for part in header.split("|")}) if header else [_only_tenant(known)]
        for tenant in tenants:
            known.check_tenant(tenant, "ask")
        return Reader(tuple(tenants), f"credential:{known.name}")

    def _check(self, wire_form: str) -> _Known:
        key = hashlib.sha256(wire_form.encode("utf-8", "replace")).digest()
        found, now = self._known.get(key), time.monotonic()
        if found is not None and not self._is_usable(found):
            self._known.pop(key, None)
            found = None
        if found is not None and now - found.checked_at < FRESH_S:
            return found
        try:
            proven = prove_credential(wire_form=wire_form, at=timezone.now())
        except CredentialRefused as error:
            self._known.pop(key, None)
            raise PushRejected("unauthenticated", CredentialRefused.code, str(error)) from error
        except AnyDatabaseError as error:
            if found is not None and self._revocations is not None and now - found.checked_at < STALE_S:
                return found
            message = "credentials cannot be checked now: the database is away"
            raise PushRejected("unavailable", "database_away", message) from error
        if len(self._known) >= REMEMBERED_MAX:
            self._known.clear()
        credential = proven.credential
        known = _Known(
            name=credential.name,
            tenants=listed_tenants(credential),
            scopes=frozenset(credential.scopes),
            checked_at=now,
            secret_hash=proven.secret_hash,
            valid_until=proven.valid_until,
        )
        self._known[key] = known
        return known

    def _is_usable(self, known: _Known) -> bool:
        """Return whether the secret is still valid, by its dates and by the list of revoked secrets."""
        if known.valid_until is not None and known.valid_until <= timezone.now():
            return False
        return self._revocations is None or not self._revocations.is_revoked(known.secret_hash)


def _wire_form(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        message = "Authorization must be Bearer, or Basic with a credential as its password"
        raise PushRejected("unauthenticated", CredentialRefused.code, message)
    try:
        _, _, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        message = "the Basic authorization is not base64 of user:password"
        raise PushRejected("unauthenticated", CredentialRefused.code, message) from error
    return password


def _tenant_of(known: _Known, header: str) -> str:
    """Return the tenant for which a credential pushes: the one in the header, or its only one."""
    if not header:
        return _only_tenant(known)
    tenant = _one(header)
    known.check_tenant(tenant, "push")
    return tenant


def _only_tenant(known: _Known) -> str:
    if len(known.tenants) == 1 and ANY_TENANT not in known.tenants:
        return next(iter(known.tenants))
    raise PushRejected("unauthenticated", "no_tenant", f"no org id: name the tenant in the header {TENANT_HEADER}")


def _trusted(header: str) -> Sender:
    if not settings.TRUST_TENANT_HEADER:
        raise _no_credential(SCOPE_PUSH)
    return Sender(_one(header) if header else ANONYMOUS, "tenant header")


def _no_credential(scope: str) -> PushRejected:
    message = f"no credential: send one with the scope {scope} as bearer token or Basic password"
    return PushRejected("unauthenticated", "no_credential", message)


def _one(header: str) -> str:
    tenants = {part.strip() for part in header.split("|")}
    if len(tenants) != 1:
        raise PushRejected("unauthenticated", "no_tenant", "a push is for one tenant, the header names several")
    return _valid(tenants.pop())


def _valid(tenant: str) -> str:
    try:
        return check_tenant(tenant.strip())
    except BadBlockName as error:
        raise PushRejected("unauthenticated", "bad_tenant", str(error)) from error
