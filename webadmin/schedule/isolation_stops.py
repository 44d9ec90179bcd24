"""Whether bad sources of a place are quarantined, or quarantine is stopped; and the counts of recent sources for it.

A place is what shares a store and an owner: a table, or a tenant of a bucket. The index of profiles is one place, "":
its blocks are written by our own writers only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import Sum

from engine.schedule.isolation import BAD_SOURCES_MIN, RecentSources
from engine.schedule.model import JobState
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import lane_of
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import IsolationStop

RECENT_MS = 3_600_000
"""How far back sources are counted."""


class FoundBad(NamedTuple):
    """A source to be quarantined: the class of its error, and when it arrived, by the clock of its lane."""

    error_class: str
    arrived_ms: int


def open_stops() -> list[IsolationStop]:
    """Return the stops without a decision, by lane and place."""
    return list(IsolationStop.objects.filter(ended_at_ms=None).order_by("lane", "place"))


def open_stop(lane: str, place: str) -> IsolationStop | None:
    """Return the stop of a place that has no decision yet; None if its bad sources are quarantined."""
    return IsolationStop.objects.filter(lane=lane, place=place, ended_at_ms=None).first()


def stopped_places(lane: str) -> list[str]:
    """Return the places of a lane whose bad sources are not quarantined until an operator decides."""
    return list(IsolationStop.objects.filter(lane=lane, ended_at_ms=None).values_list("place", flat=True))


def stops_in_words() -> str:
    """Return the first stop and the number of others as text, "" if there is none."""
    stops = open_stops()
    more = f", and {len(stops) - 1} more" if len(stops) > 1 else ""
    return f"{stops[0].where}: {stops[0].reason}{more}" if stops else ""


def recent_sources(lane_name: str, place: str, found: Sequence[FoundBad] = ()) -> RecentSources:
    """Count the sources of a place that were quarantined or failed alone, and those that were merged.

    Only sources within ``RECENT_MS`` and since the last decision count; ``found`` ones are about to be quarantined.
    Sources that arrived before an operator decided to quarantine are not counted as bad: that decision was about them.
    """
    lane, time = lane_of(lane_name), read_time()
    last = IsolationStop.objects.filter(lane=lane_name, place=place).exclude(ended_at_ms=None).first()
    ended_ms, ended_wall_ms = (last.ended_at_ms or 0, last.ended_wall_ms or 0) if last else (0, 0)
    is_accepted = last is not None and last.decision == IsolationStop.Decision.QUARANTINE
    now_ms, decided_ms = (time.wall_ms, ended_wall_ms) if lane.keeps_wall_time else (time.now_ms, ended_ms)
    accepted_ms = decided_ms if is_accepted else -1
    bad = Counter(one.error_class for one in found if one.arrived_ms > accepted_ms)
    bad += lane.bad_sources(place, max(now_ms - RECENT_MS, decided_ms), accepted_ms)
    if bad.total() < BAD_SOURCES_MIN:
        return RecentSources(bad=bad, merged_count=0)
    since_ms = max(time.now_ms - RECENT_MS, ended_ms)
    done = Job.objects.filter(lane.jobs_of(place), lane=lane_name, state=JobState.DONE, finished_at_ms__gte=since_ms)
    return RecentSources(bad=bad, merged_count=done.aggregate(count=Sum("source_count"))["count"] or 0)
