"""Operator actions of the demonstration, in its own database only: policy ages and a pause."""

from __future__ import annotations

from engine.lanes.profiles.jobs import KIND
from engine.schedule.limits import EVERYTHING
from webadmin.base.access.services import record_audit
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.services.retention_rules import set_retention
from webadmin.schedule.services.pause_schedule import pause, resume

ACTOR = "manage.py demo"
AGE_SECONDS = {0: 3, 1: 6, 2: 6}
"""Maximum age by level: long enough to merge the results of one wave of jobs together, short enough to watch."""


def shorten_ages(seconds: int | None = None) -> dict[int, tuple[int, int]]:
    """Merge remainders after seconds instead of hours; return (before, now) per level.

    ``seconds`` applies to all levels; None uses AGE_SECONDS.
    """
    changed = {}
    for policy in LevelPolicy.objects.filter(lane=KIND, level__in=AGE_SECONDS).order_by("level"):
        now = AGE_SECONDS[policy.level] if seconds is None else seconds
        changed[policy.level] = (policy.age_seconds, now)
        LevelPolicy.objects.filter(pk=policy.pk).update(age_seconds=now)
    record_audit(actor=ACTOR, action="shorten_ages", detail={str(k): list(v) for k, v in changed.items()})
    return changed


def keep_everything() -> None:
    """Disable retention, because objects of another program may be old."""
    set_retention(tenant="", keep_days=0, context=ActionContext(actor=ACTOR, why="the demo shows data of any age"))


def pause_compaction() -> None:
    """Pause compaction until ``resume_compaction``, so that the original segments can be queried."""
    pause(
        scope=EVERYTHING,
        context=ActionContext(actor=ACTOR, why="the demo asks its question before anything is compacted"),
    )


def resume_compaction() -> None:
    """Resume compaction."""
    resume(
        scope=EVERYTHING,
        context=ActionContext(actor=ACTOR, why="the question was answered from the segments as they lie"),
    )
