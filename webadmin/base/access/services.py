"""Write operations of access control: issue and check worker credentials, write the audit log, intern tenants."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q

from webadmin.base.access.errors import CredentialRefused, NameTaken
from webadmin.base.access.models import AuditEntry, Tenant, WorkerCredential
from webadmin.base.access.scopes import SCOPE_POLL
from webadmin.base.database.dialect import among, request_rows

KEY_ID_BYTES = 6
SECRET_BYTES = 32
# A node polls every second; a coarser time of last use saves writes.
LAST_USED_GRAIN = timedelta(minutes=1)

_WIRE_FORM = re.compile(r"lw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A new credential; ``wire_form`` contains the secret and cannot be shown again."""

    credential: WorkerCredential
    wire_form: str


def issue_worker_credential(
    *, name: str, scopes: Iterable[str] = (SCOPE_POLL,), actor: str, expires_at: datetime | None = None, why: str = ""
) -> IssuedCredential:
    """Create a credential. Raises NameTaken if an active one has the name."""
    key_id, secret = secrets.token_hex(KEY_ID_BYTES), new_secret()
    detail: dict[str, Any] = {"scopes": list(scopes), "why": why}
    if expires_at is not None:
        detail["expires_at"] = expires_at.isoformat()
    try:
        with transaction.atomic():
            credential = WorkerCredential.objects.create(
                name=name,
                key_id=key_id,
                secret_hash=hash_secret(secret),
                scopes=detail["scopes"],
                expires_at=expires_at,
            )
            record_audit(actor=actor, action="issue_worker_credential", target=name, detail=detail)
    except IntegrityError as error:
        raise NameTaken(f"there is already a worker credential {name!r}") from error
    return IssuedCredential(credential=credential, wire_form=wire_form(key_id, secret))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenCredential:
    """A credential that a secret proved, the secret's hash, and when the secret expires (None: never)."""

    credential: WorkerCredential
    secret_hash: str
    valid_until: datetime | None


def check_worker_credential(*, wire_form: str, at: datetime) -> WorkerCredential:
    """Return the credential that this secret proves. Raises CredentialRefused, with the same text for every cause."""
    return prove_credential(wire_form=wire_form, at=at).credential


def prove_credential(*, wire_form: str, at: datetime) -> ProvenCredential:
    """Return the credential and expiry of this secret. Raises CredentialRefused, with one text for every cause."""
    match = _WIRE_FORM.fullmatch(wire_form)
    credential = WorkerCredential.objects.filter(key_id=match[1], revoked_at=None).first() if match else None
    proven = _match_secret(credential, hash_secret(match[2])) if match and credential else None
    if proven is None or (proven.valid_until is not None and proven.valid_until <= at):
        raise CredentialRefused("unknown or revoked worker credential")
    _note_use(proven.credential, at)
    return proven


def _match_secret(credential: WorkerCredential, given: str) -> ProvenCredential | None:
    ends = [credential.expires_at]
    if not hmac.compare_digest(credential.secret_hash, given):
        if not hmac.compare_digest(credential.previous_secret_hash, given):
            return None
        ends.append(credential.previous_valid_until)
    known = [end for end in ends if end is not None]
    return ProvenCredential(credential=credential, secret_hash=given, valid_until=min(known, default=None))


def _note_use(credential: WorkerCredential, at: datetime) -> None:
    if credential.last_used_at is None or credential.last_used_at < at - LAST_USED_GRAIN:
        stale = Q(last_used_at=None) | Q(last_used_at__lt=at - LAST_USED_GRAIN)
        WorkerCredential.objects.filter(stale, id=credential.id).update(last_used_at=at)


def record_audit(*, actor: str, action: str, target: str = "", detail: dict[str, Any] | None = None) -> None:
    """Write an audit entry; call it inside the transaction of the change."""
    AuditEntry.objects.create(actor=actor, action=action, target=target, detail=detail or {})


def intern_tenants(names: Iterable[str]) -> dict[str, int]:
    """Return the row ids of these tenants, inserting new ones."""
    return request_tenant_ids(names)()


def request_tenant_ids(names: Iterable[str]) -> Callable[[], dict[str, int]]:
    """Send the query for the row ids of these tenants; new tenants are inserted when the result is fetched."""
    wanted = sorted(set(names))
    pending = _request_tenant_ids(wanted)

    def answer() -> dict[str, int]:
        known = pending()
        if missing := [name for name in wanted if name not in known]:
            Tenant.objects.bulk_create([Tenant(name=name) for name in missing], ignore_conflicts=True)
            known |= _request_tenant_ids(missing)()
        return known

    return answer


def _request_tenant_ids(names: list[str]) -> Callable[[], dict[str, int]]:
    if not names:
        return dict
    wanted, values = among(Tenant, "name", names)
    rows = request_rows(Tenant, ("name", "id"), f"WHERE {wanted}", values)
    return lambda: dict(rows())


def new_secret() -> str:
    """Return a new secret of 256 random bits."""
    return secrets.token_urlsafe(SECRET_BYTES)


def wire_form(key_id: str, secret: str) -> str:
    """Return the bearer token of a credential."""
    return f"lw_{key_id}_{secret}"


def hash_secret(secret: str) -> str:
    """Return the hash under which a secret is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()
