"""Makes small remainders wait seconds instead of hours: in the demonstration's own database only."""

from __future__ import annotations

from engine.protocol.profile_jobs import KIND
from webadmin.access.services import record_audit
from webadmin.schedule.models import LevelPolicy

AGE_SECONDS = {0: 3, 1: 6, 2: 6}
"""Per level: long enough that the results of one wave of jobs are merged together, short enough to watch."""


def shorten_ages(seconds: int | None = None) -> dict[int, tuple[int, int]]:
    """Shorten after how many seconds a queue's remainder is merged; returns (before, now) per level.

    ``seconds`` is for all levels, None for AGE_SECONDS.
    """
    changed = {}
    for policy in LevelPolicy.objects.filter(lane=KIND, level__in=AGE_SECONDS).order_by("level"):
        now = AGE_SECONDS[policy.level] if seconds is None else seconds
        changed[policy.level] = (policy.age_seconds, now)
        LevelPolicy.objects.filter(pk=policy.pk).update(age_seconds=now)
    record_audit(actor="manage.py demo", action="shorten_ages", detail={str(k): list(v) for k, v in changed.items()})
    return changed
