"""Counts what happens to objects, letters and repeated blocks, where the metrics of every web process find it."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.db.models import F

from webadmin.base.database import dialect
from webadmin.lanes.profiles.models import SweptTotal

LETTERS = "letter."
"""Before what became of a try to recover a dead letter."""
OBJECTS = "object."
"""Before what became of a try to delete a removed block's object."""
REPEATED = "repeated."
"""Before how a block differed that was registered again: same or differing."""
GROUPS = (LETTERS, OBJECTS, REPEATED)


def count_happened(what: str, count: int) -> None:
    """Add to the total of what happened; nothing is written if it did not."""
    if count:
        count_swept(what, count)


def count_swept(what: str, count: int) -> None:
    """Add to a total, and note when it was looked at last."""
    at = datetime.fromtimestamp(dialect.clock_ms() / 1000, UTC)
    with transaction.atomic():
        SweptTotal.objects.get_or_create(what=what)
        SweptTotal.objects.filter(what=what).update(count=F("count") + count, at=at)


def totals(group: str) -> dict[str, int]:
    """Return the totals of a group, without its name."""
    rows = SweptTotal.objects.filter(what__startswith=group).order_by("what").values_list("what", "count")
    return {what.removeprefix(group): count for what, count in rows}
