"""Facts for health, metrics and advice besides the progress report: workers, counting, pauses, broken builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Min, Q, Sum

from engine.schedule.model import LIVE_STATES, JobState
from engine.schedule.pauses import PausedScope
from webadmin.base.database import dialect, durability
from webadmin.base.database.answer_time import slow_database
from webadmin.progress.due_work import count_queues, due_jobs, due_queues, filled_queues, held_jobs
from webadmin.progress.models import CountingMark
from webadmin.schedule.blockers import caps_reached, jobs_with_unmatched_pins
from webadmin.schedule.breakages import merging_is_broken
from webadmin.schedule.command_log import read_time
from webadmin.schedule.isolation_stops import stops_in_words
from webadmin.schedule.lanes import LaneBlocker, lanes
from webadmin.schedule.models import Job, LogHead
from webadmin.schedule.pauses import paused_scopes
from webadmin.schedule.polls.polling_workers import worker_counts
from webadmin.schedule.queries import limits_now
from webadmin.schedule.register import failing_jobs
from webadmin.schedule.services.guard_deletions import log_behind

CAPPED_MAX = 50
"""Tenants with due work whose caps are checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """The facts that decide whether the schedule makes progress and, if not, why. Times are elapsed milliseconds.

    ``paused_blocks`` are due and held by pauses, in ``paused_queues`` and ``paused_jobs``; ``parked_blocks`` are the
    sources of parked jobs; ``lane_blockers`` are what lanes report. ``isolation_stop`` is why quarantine is
    stopped, "" if it is not. ``pinned_jobs`` are pinned to workers that do not poll, ``capped`` are the caps that hold
    due work, as text. ``log_behind`` is why nothing is deleted because the database was restored to an earlier time,
    ``unsafe_database`` why no push is acknowledged; "" otherwise. ``slow_database`` is how long the database
    takes to answer if that is too long, as text.
    """

    due_queues: int
    due_jobs: int
    waiting_jobs: int
    leased_jobs: int
    expired_jobs: int
    parked_jobs: int
    live_jobs: int
    queue_max: int
    polling_workers: int
    known_workers: int
    offered_capacity: int
    paused: Sequence[str]
    paused_blocks: int
    broken_builds: Sequence[str]
    counted_ms_ago: int | None
    stalled_ms: int | None
    completed_ms_ago: int | None
    next_ready_in_ms: int | None
    parked_blocks: int = 0
    paused_queues: int = 0
    paused_jobs: int = 0
    lane_blockers: Sequence[LaneBlocker] = ()
    isolation_stop: str = ""
    failing_jobs: str = ""
    pinned_jobs: int = 0
    capped: Sequence[str] = ()
    log_behind: str = ""
    unsafe_database: str = ""
    slow_database: str = ""

    @property
    def is_merging_broken(self) -> bool:
        """Whether a build fails too many recent jobs with one error class; ``broken_builds`` name them."""
        return bool(self.broken_builds)

    @property
    def is_work_due(self) -> bool:
        """Whether a worker with free capacity would have work, or has it already."""
        return bool(self.due_queues or self.due_jobs)


def read_standstill() -> Standstill:
    """Read the facts with a fixed number of queries over stored sums."""
    time = read_time()
    now_ms, clock_ms = time.now_ms, dialect.clock_ms()
    paused = paused_scopes(now_ms)
    limits, head = limits_now(now_ms), LogHead.objects.get()
    mark = CountingMark.objects.filter(id=1).first()
    jobs = _job_counts(now_ms, paused)
    workers = worker_counts(clock_ms)
    queues = count_queues(now_ms, paused)
    return Standstill(
        due_queues=queues.ready - queues.paused,
        due_jobs=due_jobs(paused).count(),
        waiting_jobs=jobs["waiting"],
        leased_jobs=jobs["leased"],
        expired_jobs=jobs["expired"],
        parked_jobs=jobs["parked"],
        live_jobs=head.live_job_count,
        queue_max=limits.queue_max,
        polling_workers=workers["polling"],
        known_workers=workers["known"],
        offered_capacity=workers["capacity"] or 0,
        paused=tuple(str(scope) for scope in paused),
        paused_blocks=queues.paused_blocks + int(jobs["paused_blocks"] or 0),
        paused_queues=queues.paused,
        paused_jobs=jobs["paused"],
        parked_blocks=int(jobs["parked_blocks"] or 0),
        lane_blockers=tuple(blocker for lane in lanes() for blocker in lane.blockers()),
        broken_builds=tuple(str(breakage) for breakage in merging_is_broken(now_ms)),
        counted_ms_ago=None if mark is None else max(0, clock_ms - mark.counted_at_ms),
        stalled_ms=None if mark is None or mark.stalled_since_ms is None else max(0, clock_ms - mark.stalled_since_ms),
        completed_ms_ago=None
        if mark is None or mark.last_completed_ms is None
        else max(0, clock_ms - mark.last_completed_ms),
        next_ready_in_ms=_next_ready_in_ms(now_ms),
        isolation_stop=stops_in_words(),
        failing_jobs=failing_jobs(),
        pinned_jobs=jobs_with_unmatched_pins(wall_ms=clock_ms).count(),
        capped=caps_reached(now_ms, _due_tenants(now_ms, paused)),
        log_behind=log_behind(),
        unsafe_database=durability.refusal(),
        slow_database=slow_database(),
    )


def _job_counts(now_ms: int, paused: Sequence[PausedScope]) -> dict[str, int]:
    held = Job.objects.filter(state__in=[*LIVE_STATES, JobState.PARKED]).order_by()
    return held.aggregate(
        waiting=Count("id", filter=Q(state=JobState.WAITING)),
        leased=Count("id", filter=Q(state=JobState.LEASED)),
        expired=Count("id", filter=Q(state=JobState.LEASED, lease_expires_ms__lt=now_ms)),
        parked=Count("id", filter=Q(state=JobState.PARKED)),
        parked_blocks=Sum("source_count", filter=Q(state=JobState.PARKED)),
        paused=Count("id", filter=held_jobs(paused)),
        paused_blocks=Sum("source_count", filter=held_jobs(paused)),
    )


def _due_tenants(now_ms: int, paused: Sequence[PausedScope]) -> list[tuple[str, str]]:
    """Return lane and tenant of due queues."""
    places = (rows.order_by().values_list("lane", "tenant").distinct() for rows in due_queues(now_ms, paused))
    return [place for found in places for place in found[:CAPPED_MAX]]


def _next_ready_in_ms(now_ms: int) -> int | None:
    later = [rows.filter(ready_at_ms__gt=now_ms).aggregate(at=Min("ready_at_ms"))["at"] for rows in filled_queues()]
    return min((at - now_ms for at in later if at is not None), default=None)
