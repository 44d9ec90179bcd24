"""Whether the isolation of bad blocks is stopped, and the count of recent blocks that decides it."""

from __future__ import annotations

from collections import Counter

from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery, Sum

from engine.lanes.profiles.jobs import KIND as PROFILES
from engine.schedule.isolation import BAD_BLOCKS_MIN, OBJECT_NOT_FOUND, RecentBlocks
from engine.schedule.model import JobState, ParkedKind
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.states import BlockState
from webadmin.schedule.models import Attempt, Job
from webadmin.schedule.operation_models import IsolationStop, Quarantine
from webadmin.schedule.register import BAD_OUTCOMES, LEASE_EXPIRED, is_kind, with_last_error

RECENT_MS = 3_600_000
"""How far back blocks are counted."""
COUNTED_MAX = 10_000


def open_stop() -> IsolationStop | None:
    """Return the stop that waits for a decision, None if isolation goes on."""
    return IsolationStop.objects.filter(lane=PROFILES, ended_at_ms=None).first()


def recent_blocks(now_ms: int, *, missing_count: int = 0) -> RecentBlocks:
    """Return the blocks that failed alone and those that were merged within ``RECENT_MS``, since the last decision.

    ``missing_count`` blocks were found missing by the caller and are not in quarantine yet. Blocks that arrived before
    an operator decided to quarantine are not counted as bad: that decision was about them.
    """
    since_ms = now_ms - RECENT_MS
    last = IsolationStop.objects.filter(lane=PROFILES).exclude(ended_at_ms=None).first()
    if last is not None:
        since_ms = max(since_ms, last.ended_at_ms or 0)
    jobs = lone_jobs(since_ms)
    if last is not None and last.decision == IsolationStop.Decision.QUARANTINE:
        owned = Block.objects.filter(state=BlockState.OWNED, owner_job=OuterRef("pk"))
        jobs = jobs.filter(Exists(owned.filter(arrived_at_ms__gt=last.ended_at_ms)))
    named = jobs.values_list("quarantined_for", "last_error_class")[:COUNTED_MAX]
    bad = Counter(quarantined_for or error or LEASE_EXPIRED for quarantined_for, error in named)
    if missing_count:
        bad[OBJECT_NOT_FOUND] += missing_count
    if bad.total() < BAD_BLOCKS_MIN:
        return RecentBlocks(bad=bad, merged_count=0)
    done = Job.objects.filter(lane=PROFILES, state=JobState.DONE, finished_at_ms__gte=since_ms)
    return RecentBlocks(bad=bad, merged_count=done.aggregate(count=Sum("source_count"))["count"] or 0)


def lone_jobs(since_ms: int) -> QuerySet[Job]:
    """Return the parked jobs of one block that failed, or were quarantined, since then."""
    failed = Attempt.objects.filter(job=OuterRef("pk"), outcome__in=BAD_OUTCOMES, ended_at_ms__gte=since_ms)
    held = Quarantine.objects.filter(job=OuterRef("pk"), released_at_ms=None, at_ms__gte=since_ms)
    parked = Job.objects.filter(lane=PROFILES, state=JobState.PARKED, source_count=1)
    lone = with_last_error(parked).annotate(quarantined_for=Subquery(held.values("error_class")[:1]))
    return lone.filter(
        is_kind(ParkedKind.EVICTED) & Q(Exists(failed)) | is_kind(ParkedKind.QUARANTINED) & Q(Exists(held))
    )
