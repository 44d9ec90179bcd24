"""What others may ask of the audit log."""

from __future__ import annotations

from django.db.models import Max

from webadmin.access.models import AuditEntry

SEARCHED_MAX = 100_000
"""How many entries back one change is looked for: the log has no index by what was changed."""


def audit_of(action: str, target: str, count: int) -> list[AuditEntry]:
    """Return the last entries of one action on one target, the last first."""
    last_id = AuditEntry.objects.aggregate(last=Max("id"))["last"] or 0
    recent = AuditEntry.objects.filter(id__gt=last_id - SEARCHED_MAX, action=action, target=target)
    return list(recent.order_by("-id")[:count])
