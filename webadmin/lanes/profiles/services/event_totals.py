"""Count events of objects, letters and repeated blocks, for the metrics of every web process."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import transaction
from django.db.models import F

from webadmin.base.database import dialect
from webadmin.lanes.profiles.models import SweptTotal

LETTERS = "letter."
"""Prefix of the results of recovering dead letters."""
RECOVERED = f"{LETTERS}recovered"
OBJECTS = "object."
"""Prefix of the results of deleting removed blocks' objects."""
REPEATED = "repeated."
"""Prefix of repeated registrations by content: same or differing."""
GROUPS = (LETTERS, OBJECTS, REPEATED)


def count_events(what: str, count: int) -> None:
    """Add to the total of an event; nothing is written for 0."""
    if count:
        count_swept(what, count)


def count_swept(what: str, count: int) -> None:
    """Add to a total, and record the time of the sweep."""
    at = datetime.fromtimestamp(dialect.clock_ms() / 1000, UTC)
    with transaction.atomic():
        SweptTotal.objects.get_or_create(what=what)
        SweptTotal.objects.filter(what=what).update(count=F("count") + count, at=at)


def last_counted_ms(what: str) -> int | None:
    """Return the database's wall-clock time of the last event, None if there was none."""
    at = SweptTotal.objects.filter(what=what).values_list("at", flat=True).first()
    return round(at.timestamp() * 1000) if at else None


def totals(group: str) -> dict[str, int]:
    """Return the totals of a group, without its prefix."""
    rows = SweptTotal.objects.filter(what__startswith=group).order_by("what").values_list("what", "count")
    return {what.removeprefix(group): count for what, count in rows}
