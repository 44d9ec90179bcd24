"""Changes of issued credentials: rotate the secret, set the expiry, revoke. All are audited.

Each change runs in one transaction and publishes the list of revoked secrets after its commit: processes that have
cached a credential read that list while the database is unavailable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from webadmin.base.access.errors import CredentialChangeRefused, UnknownCredential
from webadmin.base.access.models import RevokedSecret, WorkerCredential
from webadmin.base.access.revocations import publish_revocations
from webadmin.base.access.scopes import SCOPE_READ_CATALOG, SCOPES, unknown_scopes
from webadmin.base.access.services import hash_secret, issue_worker_credential, new_secret, record_audit, wire_form

OVERLAP_DEFAULT = timedelta(days=1)
"""How long the old secret is accepted after a rotation by default."""
OVERLAP_MAX = timedelta(days=90)
PUBLISHED_LATER = "the list of revoked secrets could not be written to the object store now; control tries again"


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialOutcome:
    """The outcome of a change of credentials, or of its dry run.

    ``secret`` is the new wire form, which is shown once; "" if there is none.
    """

    action: str
    is_dry_run: bool
    credentials: Sequence[dict[str, Any]]
    secret: str = ""
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form for admin, API and commands. A catalog client needs the secret in two parts."""
        data: dict[str, Any] = {"action": self.action, "dry_run": self.is_dry_run}
        if self.secret:
            data["secret"] = self.secret
            if any(SCOPE_READ_CATALOG in credential["scopes"] for credential in self.credentials):
                prefix, key_id, secret = self.secret.split("_", 2)
                data |= {"access_key_id": f"{prefix}_{key_id}", "secret_access_key": secret}
        return data | {"credentials": list(self.credentials), "notes": self.notes}


def describe_credential(credential: WorkerCredential) -> dict[str, Any]:
    """Return the public fields of a credential: all but its hashes. Times are ISO 8601 in UTC or null."""
    times = ("created_at", "last_used_at", "previous_valid_until", "expires_at", "revoked_at")
    moments = {name: moment.isoformat() if (moment := getattr(credential, name)) else None for name in times}
    return {"name": credential.name, "key_id": f"lw_{credential.key_id}", "scopes": list(credential.scopes)} | moments


def create_credential(
    *,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    actor: str,
    is_dry_run: bool = False,
    why: str = "",
) -> CredentialOutcome:
    """Issue a credential. Raises NameTaken, CredentialChangeRefused."""
    _check_expiry(expires_at)
    if not name or not scopes:
        raise CredentialChangeRefused("a credential needs a name and at least one scope")
    if unknown := unknown_scopes(scopes):
        raise CredentialChangeRefused(
            f"there is no scope {', '.join(map(repr, unknown))}: scopes are {', '.join(SCOPES)}, and tenant:NAME"
        )
    if is_dry_run:
        draft = WorkerCredential(name=name, scopes=list(scopes), expires_at=expires_at)
        return CredentialOutcome(action="create", is_dry_run=True, credentials=[describe_credential(draft)])
    issued = issue_worker_credential(name=name, scopes=scopes, expires_at=expires_at, actor=actor, why=why)
    return CredentialOutcome(
        action="create",
        is_dry_run=False,
        credentials=[describe_credential(issued.credential)],
        secret=issued.wire_form,
    )


def rotate_credential(
    *, name: str, overlap: timedelta = OVERLAP_DEFAULT, actor: str, is_dry_run: bool = False, why: str = ""
) -> CredentialOutcome:
    """Give a credential a new secret; the current one is accepted for another ``overlap``, 0 ends it now.

    An older secret that is still in its overlap ends now. Raises UnknownCredential, CredentialChangeRefused.
    """
    if not timedelta(0) <= overlap <= OVERLAP_MAX:
        raise CredentialChangeRefused(f"an overlap is from 0 to {OVERLAP_MAX.days} days more, not {overlap}")
    now, secret = timezone.now(), new_secret()
    with transaction.atomic():
        credential = _find(name)
        ended = [credential.previous_secret_hash] if credential.previous_secret_hash else []
        notes = ["the secret from before the last rotation is revoked"] if ended else []
        credential.previous_secret_hash = credential.secret_hash if overlap else ""
        credential.previous_valid_until = now + overlap if overlap else None
        if not overlap:
            ended.append(credential.secret_hash)
        credential.secret_hash = hash_secret(secret)
        if not is_dry_run:
            credential.save(update_fields=["secret_hash", "previous_secret_hash", "previous_valid_until"])
            _note_revoked(ended, now)
            detail = {"overlap_seconds": int(overlap.total_seconds()), "why": why}
            record_audit(actor=actor, action="rotate_worker_credential", target=name, detail=detail)
    return CredentialOutcome(
        action="rotate",
        is_dry_run=is_dry_run,
        credentials=[describe_credential(credential)],
        secret="" if is_dry_run else wire_form(credential.key_id, secret),
        notes=notes + (_publish() if ended and not is_dry_run else []),
    )


def set_credential_expiry(
    *, name: str, expires_at: datetime | None, actor: str, is_dry_run: bool = False, why: str = ""
) -> CredentialOutcome:
    """Set when a credential expires; None: never. Raises UnknownCredential, CredentialChangeRefused."""
    _check_expiry(expires_at)
    with transaction.atomic():
        credential = _find(name)
        credential.expires_at = expires_at
        if not is_dry_run:
            credential.save(update_fields=["expires_at"])
            detail = {"expires_at": expires_at.isoformat() if expires_at else None, "why": why}
            record_audit(actor=actor, action="set_credential_expiry", target=name, detail=detail)
    return CredentialOutcome(action="expire", is_dry_run=is_dry_run, credentials=[describe_credential(credential)])


def revoke_credential(*, name: str, actor: str, is_dry_run: bool = False, why: str = "") -> CredentialOutcome:
    """Revoke all secrets of a credential permanently; its name becomes free. Raises UnknownCredential."""
    now = timezone.now()
    with transaction.atomic():
        credential = _find(name)
        credential.revoked_at = now
        if not is_dry_run:
            credential.save(update_fields=["revoked_at"])
            _note_revoked([credential.secret_hash, credential.previous_secret_hash], now)
            record_audit(actor=actor, action="revoke_worker_credential", target=name, detail={"why": why})
    return CredentialOutcome(
        action="revoke",
        is_dry_run=is_dry_run,
        credentials=[describe_credential(credential)],
        notes=[] if is_dry_run else _publish(),
    )


def _find(name: str) -> WorkerCredential:
    credential = WorkerCredential.objects.select_for_update().filter(name=name, revoked_at=None).first()
    if credential is None:
        raise UnknownCredential(f"no credential named {name!r} is in use: list them with manage.py credentials list")
    return credential


def _check_expiry(expires_at: datetime | None) -> None:
    if expires_at is not None and expires_at <= timezone.now():
        raise CredentialChangeRefused("an expiry date is in the future; revoke a credential to end it now")


def _note_revoked(hashes: Sequence[str], at: datetime) -> None:
    rows = [RevokedSecret(secret_hash=each, revoked_at=at) for each in hashes if each]
    RevokedSecret.objects.bulk_create(rows, ignore_conflicts=True)


def _publish() -> list[str]:
    """Publish the list now, after the commit; return notes for the operator."""
    return [] if publish_revocations() else [PUBLISHED_LATER]
