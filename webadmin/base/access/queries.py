"""Reads of the audit log and of credentials."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max

from webadmin.base.access.models import AuditEntry, WorkerCredential

SEARCHED_MAX = 100_000
"""How many entries back one change is looked for: the log has no index by what was changed."""
EXPIRY_WARNING = timedelta(days=14)
"""How long before it expires a credential is named on the front page."""


def audit_of(action: str, target: str, count: int) -> list[AuditEntry]:
    """Return the last entries of one action on one target, the last first."""
    last_id = AuditEntry.objects.aggregate(last=Max("id"))["last"] or 0
    recent = AuditEntry.objects.filter(id__gt=last_id - SEARCHED_MAX, action=action, target=target)
    return list(recent.order_by("-id")[:count])


def credential_warning(credential: WorkerCredential, now: datetime) -> str:
    """Return what an operator should know of a credential's end: that it expires soon or has expired; else ""."""
    if credential.revoked_at is not None or credential.expires_at is None:
        return ""
    if credential.expires_at <= now:
        return "expired"
    return "expires soon" if credential.expires_at <= now + EXPIRY_WARNING else ""


def expiring_credential_count(now: datetime) -> int:
    """Return how many credentials in use have expired or expire within the time of the warning."""
    return WorkerCredential.objects.filter(revoked_at=None, expires_at__lte=now + EXPIRY_WARNING).count()
