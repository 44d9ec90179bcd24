"""The write side of access: issue, check and revoke worker credentials, record what operators do, intern tenants."""

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

from webadmin.access.errors import CredentialRefused, NameTaken
from webadmin.access.models import AuditEntry, Tenant, WorkerCredential
from webadmin.database.dialect import among, ask_rows

SCOPE_POLL = "jobs:poll"
KEY_ID_BYTES = 6
SECRET_BYTES = 32
# A node polls every second; when it was last seen need not be known better than this.
LAST_USED_GRAIN = timedelta(minutes=1)

_WIRE_FORM = re.compile(r"lw_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A new credential; ``wire_form`` holds the secret and cannot be shown again."""

    credential: WorkerCredential
    wire_form: str


def issue_worker_credential(*, name: str, scopes: Iterable[str] = (SCOPE_POLL,), actor: str) -> IssuedCredential:
    """Make a credential for nodes. Raises NameTaken."""
    key_id, secret = secrets.token_hex(KEY_ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    try:
        with transaction.atomic():
            credential = WorkerCredential.objects.create(
                name=name, key_id=key_id, secret_hash=_hash(secret), scopes=list(scopes)
            )
            record_audit(actor=actor, action="issue_worker_credential", target=name, detail={"scopes": list(scopes)})
    except IntegrityError as error:
        raise NameTaken(f"there is already a worker credential {name!r}") from error
    return IssuedCredential(credential=credential, wire_form=f"lw_{key_id}_{secret}")


def revoke_worker_credential(*, name: str, actor: str, at: datetime) -> bool:
    """Make a credential useless from now on; False if there is none of this name that still worked."""
    with transaction.atomic():
        revoked = WorkerCredential.objects.filter(name=name, revoked_at=None).update(revoked_at=at)
        if revoked:
            record_audit(actor=actor, action="revoke_worker_credential", target=name)
    return bool(revoked)


def check_worker_credential(*, wire_form: str, at: datetime) -> WorkerCredential:
    """Return the credential that this secret proves. Raises CredentialRefused, with one text for every cause."""
    match = _WIRE_FORM.fullmatch(wire_form)
    credential = WorkerCredential.objects.filter(key_id=match[1], revoked_at=None).first() if match else None
    if match is None or credential is None or not hmac.compare_digest(credential.secret_hash, _hash(match[2])):
        raise CredentialRefused("unknown or revoked worker credential")
    _note_use(credential, at)
    return credential


def _note_use(credential: WorkerCredential, at: datetime) -> None:
    if credential.last_used_at is None or credential.last_used_at < at - LAST_USED_GRAIN:
        stale = Q(last_used_at=None) | Q(last_used_at__lt=at - LAST_USED_GRAIN)
        WorkerCredential.objects.filter(stale, id=credential.id).update(last_used_at=at)


def record_audit(*, actor: str, action: str, target: str = "", detail: dict[str, Any] | None = None) -> None:
    """Write down who did what; call it inside the transaction that does it."""
    AuditEntry.objects.create(actor=actor, action=action, target=target, detail=detail or {})


def intern_tenants(names: Iterable[str]) -> dict[str, int]:
    """Return the row ids of these tenants, making those that are new."""
    return ask_tenants(names)()


def ask_tenants(names: Iterable[str]) -> Callable[[], dict[str, int]]:
    """Ask for the row ids of these tenants; those that are new are made when the answer is taken."""
    wanted = sorted(set(names))
    asked = _ask_tenant_ids(wanted)

    def answer() -> dict[str, int]:
        known = asked()
        if missing := [name for name in wanted if name not in known]:
            Tenant.objects.bulk_create([Tenant(name=name) for name in missing], ignore_conflicts=True)
            known |= _ask_tenant_ids(missing)()
        return known

    return answer


def _ask_tenant_ids(names: list[str]) -> Callable[[], dict[str, int]]:
    if not names:
        return dict
    wanted, values = among(Tenant, "name", names)
    rows = ask_rows(Tenant, ("name", "id"), f"WHERE {wanted}", values)
    return lambda: dict(rows())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
