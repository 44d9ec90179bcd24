"""Access keys: credentials for the repositories of one tenant, sent as user name and password of HTTP Basic.

The id of a key is the first part of the credential's wire form; its secret is the rest.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest
from django.utils import timezone

from engine.formats.profile_block.container.object_names import check_tenant
from webadmin.base.access.credential_changes import create_credential
from webadmin.base.access.errors import CredentialRefused, ScopeMissing
from webadmin.base.access.models import WorkerCredential
from webadmin.base.access.scopes import (
    ANY_TENANT,
    SCOPE_READ_CATALOG,
    SCOPE_WRITE_CATALOG,
    TENANT_PREFIX,
    listed_tenants,
)
from webadmin.base.access.services import check_worker_credential
from webadmin.lanes.catalog.api.errors import RequestRefused

_ID_PARTS = 2


@dataclass(frozen=True, slots=True)
class AccessKey:
    """The authenticated caller; ``name`` is the name of the credential and is recorded as the committer of commits."""

    name: str
    tenant: str
    may_read: bool
    may_write: bool

    @property
    def actor(self) -> str:
        """Return the caller's name for the audit log and for the list of refused requests."""
        return f"credential:{self.name}"


@dataclass(frozen=True, slots=True)
class IssuedKey:
    """A newly issued access key; the secret cannot be shown again."""

    access_key_id: str
    secret_access_key: str


def issue_access_key(
    *, name: str, tenant: str, may_write: bool, actor: str, expires_at: datetime | None = None, why: str = ""
) -> IssuedKey:
    """Issue an access key for the repositories of a tenant.

    Raises NameTaken, BadBlockName, RequestRefused, CredentialChangeRefused.
    """
    if check_tenant(tenant) == ANY_TENANT:
        raise RequestRefused("an access key is for one tenant")
    scopes = [SCOPE_READ_CATALOG, *([SCOPE_WRITE_CATALOG] if may_write else []), TENANT_PREFIX + tenant]
    outcome = create_credential(name=name, scopes=scopes, expires_at=expires_at, actor=actor, why=why)
    parts = outcome.secret.split("_", _ID_PARTS)
    return IssuedKey("_".join(parts[:_ID_PARTS]), parts[_ID_PARTS])


def key_of_request(request: HttpRequest) -> AccessKey:
    """Return the access key that authenticates a request. Raises CredentialRefused, ScopeMissing."""
    scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        raise CredentialRefused("an access key is expected: HTTP Basic with its id and its secret")
    try:
        access_key_id, _, secret = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError) as error:
        raise CredentialRefused("the access key is not in the form of HTTP Basic") from error
    return _key_of(check_worker_credential(wire_form=f"{access_key_id}_{secret}", at=timezone.now()))


def _key_of(credential: WorkerCredential) -> AccessKey:
    # Addresses contain the repository but no tenant, so a key must be limited to exactly one tenant.
    tenants = listed_tenants(credential)
    if len(tenants) != 1 or ANY_TENANT in tenants:
        raise ScopeMissing("this credential is no access key: it is not for exactly one tenant")
    return AccessKey(
        name=credential.name,
        tenant=next(iter(tenants)),
        may_read=credential.has_scope(SCOPE_READ_CATALOG),
        may_write=credential.has_scope(SCOPE_WRITE_CATALOG),
    )
