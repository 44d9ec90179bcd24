"""Due work: the measure of a standstill and of a backlog.

Due are the blocks of ready queues, and the jobs that wait or whose lease has expired, unless they are paused. Times are
command time; while the schedule is idle and command time is held back, nothing becomes due.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q, QuerySet

from engine.schedule.limits import ScopeKind
from engine.schedule.model import JobState
from engine.schedule.pauses import PausedScope, PauseMode
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.schedule.command_log import read_time
from webadmin.schedule.models import Job
from webadmin.schedule.pauses import paused_scopes


def is_work_due() -> bool:
    """Return whether a worker with free capacity would have work or has it already."""
    now_ms = read_time().now_ms
    paused = paused_scopes(now_ms)
    return due_jobs(paused).exists() or due_queues(now_ms, paused).exists()


def due_queues(now_ms: int, paused: Sequence[PausedScope]) -> QuerySet[LevelQueue]:
    """Return the queues from which jobs could be planned now."""
    ready = LevelQueue.objects.filter(block_count__gt=0, ready_at_ms__lte=now_ms)
    return ready.exclude(covered_by(paused)) if paused else ready


def due_jobs(paused: Sequence[PausedScope]) -> QuerySet[Job]:
    """Return the waiting and leased jobs, all of which have to be completed."""
    waiting = Q(state=JobState.WAITING)
    if paused:
        waiting &= ~held_jobs(paused)
    return Job.objects.filter(waiting | Q(state=JobState.LEASED))


def held_jobs(paused: Sequence[PausedScope]) -> Q:
    """Return the condition that a pause holds a job without a worker; draining does not hold waiting jobs."""
    waits = Q(state__in=[JobState.WAITING, JobState.BLOCKED])
    return waits & covered_by([scope for scope in paused if scope.mode is PauseMode.PAUSE])


def covered_by(paused: Sequence[PausedScope]) -> Q:
    """Return the condition that a row of jobs or queues is within one of these scopes."""
    covered = Q(pk__in=[])
    for scope in paused:
        if scope.kind is ScopeKind.GLOBAL:
            return Q(pk__isnull=False)
        column = {ScopeKind.LANE: "lane", ScopeKind.TENANT: "tenant", ScopeKind.LEVEL: "level"}[scope.kind]
        covered |= Q(**{column: scope.value})
    return covered
