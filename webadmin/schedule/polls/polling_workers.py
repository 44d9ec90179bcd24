"""The number of workers, and those that polled recently."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.db.models import Count, Max, Q, Sum

from webadmin.base.database import dialect
from webadmin.schedule.models import Worker

SILENT_AFTER_SECONDS = 60
"""A node polls every second; one that was silent for this long takes no work, whatever the lease is."""


def worker_counts(clock_ms: int) -> dict[str, int]:
    """Return the numbers of known and of polling workers, the latter's free slots, and the time of the last poll."""
    since = datetime.fromtimestamp(clock_ms / 1000, UTC) - timedelta(seconds=SILENT_AFTER_SECONDS)
    polling = Q(last_poll_at__gte=since, credential__revoked_at=None)
    return Worker.objects.order_by().aggregate(
        known=Count("id"),
        polling=Count("id", filter=polling),
        capacity=Sum("capacity", filter=polling),
        last=Max("last_poll_at"),
    )


def polling_worker_count() -> int:
    """Return how many workers polled recently."""
    return worker_counts(dialect.clock_ms())["polling"]
