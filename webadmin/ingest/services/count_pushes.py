"""Add the counts of a web process to the shared sums."""

from __future__ import annotations

from django.db import transaction
from django.db.models import F

from webadmin.base.database import dialect
from webadmin.ingest.models import MESSAGE_MAX, OUTCOME_MAX, PushCount
from webadmin.ingest.push_tally import Sums


def count_pushes(sums: Sums) -> None:
    """Add the sums in one transaction."""
    if not sums:
        return
    now_ms = dialect.clock_ms()
    with transaction.atomic():
        for (tenant, outcome), found in sorted(sums.items(), key=lambda item: item[0]):
            key = {"tenant": tenant, "outcome": outcome[:OUTCOME_MAX]}
            PushCount.objects.bulk_create([PushCount(**key, last_at_ms=now_ms)], ignore_conflicts=True)
            changes = {"count": F("count") + found.count, "bytes": F("bytes") + found.bytes, "last_at_ms": now_ms}
            if found.message:
                changes["last_message"] = found.message[:MESSAGE_MAX].replace("\0", "?")
            PushCount.objects.filter(**key).update(**changes)
