"""Reads of the audit log and of credentials."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Max

from webadmin.base.access.models import AuditEntry, WorkerCredential

SEARCHED_MAX = 100_000
"""How many of the latest entries are searched for one change: the log has no index on targets."""
EXPIRY_WARNING = timedelta(days=14)
"""How long before its expiry a credential is reported on the front page."""


def audit_of(action: str, target: str, count: int) -> list[AuditEntry]:
    """Return the last ``count`` entries of one action on one target, newest first."""
    last_id = AuditEntry.objects.aggregate(last=Max("id"))["last"] or 0
    recent = AuditEntry.objects.filter(id__gt=last_id - SEARCHED_MAX, action=action, target=target)
    return list(recent.order_by("-id")[:count])


def credential_warning(credential: WorkerCredential, now: datetime) -> str:
    """Return a warning that a credential expires soon or has expired; "" if neither."""
    if credential.revoked_at is not None or credential.expires_at is None:
        return ""
    if credential.expires_at <= now:
        return "expired"
    return "expires soon" if credential.expires_at <= now + EXPIRY_WARNING else ""


def expiring_credential_count(now: datetime) -> int:
    """Return how many active credentials have expired or expire within EXPIRY_WARNING."""
    return WorkerCredential.objects.filter(revoked_at=None, expires_at__lte=now + EXPIRY_WARNING).count()
