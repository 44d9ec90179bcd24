"""Open tasks and active actions that overlap an interval, as the timeline draws them. Their number is bounded."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Exists, IntegerField, OuterRef, QuerySet, Value, When

from engine.schedule.model import JobState
from webadmin.adminkit import formatting as show
from webadmin.lanes.tables.models import ChunkOverride, DataSource
from webadmin.lanes.tables.states import TaskState
from webadmin.lanes.tables.task_models import Task, TaskDependency
from webadmin.lanes.tables.timeline_page.query_parameters import Stretch
from webadmin.schedule.models import Job

TASKS_MAX = 200
OVERRIDES_MAX = 200
RUNNING, WAITING, BLOCKED, PARKED = "running", "waiting", "blocked", "parked"
_FIRST = Case(
    When(job__state=JobState.LEASED, then=Value(0)),
    When(job__state=JobState.PARKED, then=Value(1)),
    default=Value(2),
    output_field=IntegerField(),
)


def open_tasks(source: DataSource) -> QuerySet[Task]:
    """Return the open tasks of a table: waiting, running or parked."""
    return Task.objects.filter(source=source, state=TaskState.OPEN)


def open_needs(tasks: QuerySet[Task]) -> QuerySet[Task]:
    """Annotate each task with ``has_needs``: whether a task that it depends on is open."""
    needed = TaskDependency.objects.filter(task=OuterRef("id"), needs__state=TaskState.OPEN)
    return tasks.annotate(has_needs=Exists(needed))


def colour_label(colour: int) -> str:
    """Return the colour of a task: red tasks may run at once, black ones wait for tasks that share a segment."""
    return "red" if not colour else "black" if colour == 1 else f"black {colour}"


def read_bars(source: DataSource, stretch: Stretch) -> dict[str, Any]:
    """Return the tasks of an interval, running ones first, then by priority, and how many were left out."""
    tasks = open_tasks(source).filter(start_ms__lt=stretch.end_ms, end_ms__gt=stretch.start_ms).select_related("job")
    rows = list(tasks.defer("job__spec", "job__result").order_by(_FIRST, "-priority", "id")[: TASKS_MAX + 1])
    left_out = tasks.count() - TASKS_MAX if len(rows) > TASKS_MAX else 0
    shown = rows[:TASKS_MAX]
    needs: dict[int, list[int]] = {}
    pairs = TaskDependency.objects.filter(task__in=[task.id for task in shown]).exclude(needs__state__in=_OVER)
    for task_id, needed_id in pairs.order_by("id").values_list("task_id", "needs_id")[: TASKS_MAX * 5]:
        needs.setdefault(task_id, []).append(needed_id)
    return {"shown": [_bar(task, needs.get(task.id, [])) for task in shown], "left_out": left_out}


_OVER = [TaskState.DONE, TaskState.SHED, TaskState.ENDED]


def state_label(job: Job | None, *, needs: bool) -> str:
    """Return the displayed state of an open task with this job.

    The job of a task that waits for room is blocked too, but only a task that ``needs`` others to end is shown as
    blocked.
    """
    if job is None:
        return WAITING
    known = {JobState.LEASED: RUNNING, JobState.PARKED: PARKED}
    return known.get(JobState(job.state), BLOCKED if needs else WAITING)


def _bar(task: Task, needs: list[int]) -> dict[str, Any]:
    return {
        "id": task.id,
        "start_ms": task.start_ms,
        "end_ms": task.end_ms,
        "state": state_label(task.job, needs=bool(needs)),
        "colour": colour_label(task.colour),
        "needs": needs,
        "chunks": task.chunk_count,
        "segments": task.segment_count,
        "bytes": task.byte_count,
        "cost": task.cost,
        "priority": task.priority / 1_000_000,
        "is_over_limit": task.is_over_limit,
        "cause": task.cause,
        "address": show.page_address(task),
    }


def read_overrides(source: DataSource, stretch: Stretch) -> list[dict[str, Any]]:
    """Return the active actions on chunks in an interval."""
    overrides = ChunkOverride.objects.filter(source=source, ended_at_ms=None)
    rows = overrides.filter(start_ms__lt=stretch.end_ms, end_ms__gt=stretch.start_ms).order_by("start_ms", "id")
    return [
        {
            "kind": override.kind,
            "start_ms": override.start_ms,
            "end_ms": override.end_ms,
            "why": override.why,
            "actor": override.actor,
        }
        for override in rows[:OVERRIDES_MAX]
    ]
