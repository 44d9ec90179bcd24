"""Builds that fail too many recent jobs with one error class: the cause is the build, not the sources."""

from __future__ import annotations

from django.db.models.functions import Coalesce

from engine.schedule.isolation import Breakage, RecentRun, find_breakages
from engine.schedule.model import AttemptOutcome
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Attempt
from webadmin.schedule.register import BAD_OUTCOMES, LEASE_EXPIRED

RECENT_RUNS_MAX = 500
RECENT_MS = 3_600_000
"""How far back attempts are counted, milliseconds."""


def merging_is_broken(now_ms: int | None = None) -> tuple[Breakage, ...]:
    """Return the builds that fail too many recent jobs with one error class; for them bad sources are not isolated."""
    since_ms = (read_time().now_ms if now_ms is None else now_ms) - RECENT_MS
    last = Attempt.objects.filter(outcome__in=[AttemptOutcome.COMPLETED, *BAD_OUTCOMES])
    rows = last.annotate(family=Coalesce("job__split_from__root_id", "job_id")).order_by("-id")
    recent = rows.values_list("family", "build", "outcome", "reason", "ended_at_ms")[:RECENT_RUNS_MAX]
    return find_breakages(
        RecentRun(
            family=family,
            build=build,
            error_class=None if outcome == AttemptOutcome.COMPLETED else error_class_of(reason),
        )
        for family, build, outcome, reason, ended_at_ms in recent
        if ended_at_ms is not None and ended_at_ms >= since_ms
    )


def error_class_of(reason: dict[str, str] | None) -> str:
    """Return the error class of an attempt's failure."""
    return (reason or {}).get("error_class") or LEASE_EXPIRED
