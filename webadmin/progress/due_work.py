"""Due work: the measure of a standstill and of a backlog.

Due are the blocks of ready queues, and the jobs that wait or whose lease has expired, unless they are paused. Times are
command time; while the schedule is idle and command time is held back, nothing becomes due.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum

from engine.schedule.limits import ScopeKind
from engine.schedule.model import JobState
from engine.schedule.pauses import PausedScope, PauseMode
from webadmin.schedule.command_log import read_time
from webadmin.schedule.lanes import lanes
from webadmin.schedule.models import Job
from webadmin.schedule.pauses import paused_scopes


def is_work_due() -> bool:
    """Return whether a worker with free capacity would have work or has it already."""
    now_ms = read_time().now_ms
    paused = paused_scopes(now_ms)
    return due_jobs(paused).exists() or any(rows.exists() for rows in due_queues(now_ms, paused))


def filled_queues() -> list[QuerySet[Any]]:
    """Return the queues with sources, for each lane that has queues."""
    found = [rows for lane in lanes() if (rows := lane.queue_rows()) is not None]
    return [rows.filter(block_count__gt=0) for rows in found]


def due_queues(now_ms: int, paused: Sequence[PausedScope]) -> list[QuerySet[Any]]:
    """Return, for each lane that has queues, those from which jobs could be planned now."""
    ready = [rows.filter(ready_at_ms__lte=now_ms) for rows in filled_queues()]
    return [rows.exclude(covered_by(paused)) for rows in ready] if paused else ready


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """Ready queues and their blocks, and those of them that a pause holds."""

    ready: int = 0
    blocks: int = 0
    paused: int = 0
    paused_blocks: int = 0


def count_queues(now_ms: int, paused: Sequence[PausedScope]) -> QueueCounts:
    """Count the ready queues of all lanes."""
    found: Counter[str] = Counter()
    held = covered_by(paused)
    for rows in due_queues(now_ms, ()):
        sums = rows.order_by().aggregate(
            ready=Count("id"),
            blocks=Sum("block_count"),
            paused=Count("id", filter=held),
            paused_blocks=Sum("block_count", filter=held),
        )
        found.update({name: int(value or 0) for name, value in sums.items()})
    return QueueCounts(**found)


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
