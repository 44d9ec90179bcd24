"""Open tasks and orders in force that touch a stretch of time, as the page draws them. Their number is bounded."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, Exists, IntegerField, OuterRef, QuerySet, Value, When

from engine.schedule.model import JobState
from webadmin.adminkit import formatting as show
from webadmin.lanes.tables.models import ChunkOrder, DataSource
from webadmin.lanes.tables.states import TaskState
from webadmin.lanes.tables.task_models import Task, TaskDependency
from webadmin.lanes.tables.timeline_page.asked import Stretch
from webadmin.schedule.models import Job

TASKS_MAX = 200
ORDERS_MAX = 200
RUNNING, WAITING, BLOCKED, PARKED = "running", "waiting", "blocked", "parked"
_FIRST = Case(
    When(job__state=JobState.LEASED, then=Value(0)),
    When(job__state=JobState.PARKED, then=Value(1)),
    default=Value(2),
    output_field=IntegerField(),
)


def open_tasks(source: DataSource) -> QuerySet[Task]:
    """Return the tasks of a table that wait, run, or are parked."""
    return Task.objects.filter(source=source, state=TaskState.OPEN)


def open_needs(tasks: QuerySet[Task]) -> QuerySet[Task]:
    """Say of each task, as ``has_needs``, whether one that it needs to end is open."""
    needed = TaskDependency.objects.filter(task=OuterRef("id"), needs__state=TaskState.OPEN)
    return tasks.annotate(has_needs=Exists(needed))


def colour_word(colour: int) -> str:
    """Return the colour of a task: red ones may run at once, black ones wait for those they share a segment with."""
    return "red" if not colour else "black" if colour == 1 else f"black {colour}"


def read_bars(source: DataSource, stretch: Stretch) -> dict[str, Any]:
    """Return the tasks of a stretch of time, those that run first, then by priority, and how many were left out."""
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


def state_word(job: Job | None, *, needs: bool) -> str:
    """Return what people call the state of an open task with this job: the job of one that waits for room is blocked,
    too, but only one that ``needs`` others to end is called so."""
    if job is None:
        return WAITING
    known = {JobState.LEASED: RUNNING, JobState.PARKED: PARKED}
    return known.get(JobState(job.state), BLOCKED if needs else WAITING)


def _bar(task: Task, needs: list[int]) -> dict[str, Any]:
    return {
        "id": task.id,
        "start_ms": task.start_ms,
        "end_ms": task.end_ms,
        "state": state_word(task.job, needs=bool(needs)),
        "colour": colour_word(task.colour),
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


def read_orders(source: DataSource, stretch: Stretch) -> list[dict[str, Any]]:
    """Return what operators want of chunks in a stretch of time."""
    orders = ChunkOrder.objects.filter(source=source, ended_at_ms=None)
    rows = orders.filter(start_ms__lt=stretch.end_ms, end_ms__gt=stretch.start_ms).order_by("start_ms", "id")
    return [
        {
            "kind": order.kind,
            "start_ms": order.start_ms,
            "end_ms": order.end_ms,
            "why": order.why,
            "actor": order.actor,
        }
        for order in rows[:ORDERS_MAX]
    ]
