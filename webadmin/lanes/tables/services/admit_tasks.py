"""Admit waiting tasks to the schedule, in the controller cycle and right after a commit freed their place."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from django.db import DatabaseError
from django.db.models import F

from engine.core.errors import LithifyError
from engine.lanes.tables.plan.admission import admit
from engine.lanes.tables.plan.model import PRIORITY_UNIT
from engine.schedule.model import JobState
from engine.schedule.priority import urgent_priority_ms
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import dialect
from webadmin.lanes.tables.cycle_view import budget_left, open_tasks, queue_limits, queue_of
from webadmin.lanes.tables.models import Chunk, DataSource, Policy
from webadmin.lanes.tables.task_models import Task
from webadmin.schedule.errors import StaleSnapshot
from webadmin.schedule.models import Job
from webadmin.schedule.services.operation import Operation, operation

log = logging.getLogger(__name__)

CONTEXT = ActionContext(actor="control:tables", why="a commit made room")


def follow_commits(task_ids: Iterable[int]) -> None:
    """Admit waiting tasks in the tables of tasks that have ended. Failures are left to the next controller cycle."""
    for source in DataSource.objects.filter(tasks__in=list(task_ids)).distinct():
        try:
            admit_tasks(source)
        except (LithifyError, DatabaseError) as error:
            log.info("tasks_admitted_later table=%s reason=%s", source, error)


def admit_tasks(source: DataSource) -> int:
    """Admit the waiting tasks of a table that there is room for now; return their number.

    No chunk is analysed: a task with a changed chunk waits for the controller, like deferred chunks. Raises
    StaleSnapshot on concurrent changes other than registrations.
    """
    row = DataSource.objects.get(id=source.id)
    tasks = {task.name: task for task in open_tasks(row)}
    if row.is_paused or row.refusal or not any(task.admitted_at_ms is None for task in tasks.values()):
        return 0
    policy, now_ms = Policy.objects.get(source=row), dialect.clock_ms()
    changed = set(Chunk.objects.filter(task__in=tasks.values(), is_dirty=True).values_list("task_id", flat=True))
    queue = [
        replace(entry, deps=(entry.name,)) if tasks[entry.name].id in changed else entry
        for entry in queue_of(tasks.values())
    ]
    limits = replace(queue_limits(policy, tasks.values(), room=0), waiting_max=len(queue))
    admission = admit(queue, limits, now_ms=now_ms)
    sizes = {name: task.byte_count for name, task in tasks.items()}
    started = within_budget([task.name for task in admission.started], sizes, budget_left(policy))
    if not started:
        return 0
    passed = [(task.name, task.passed_over) for task in admission.passed_over]
    with operation() as run:
        if not DataSource.objects.filter(id=row.id, revision=row.revision).update(revision=F("revision") + 1):
            raise StaleSnapshot("a revision was taken, or a job has ended")
        jobs = [f"{name}-D{row.id}" for name in started]
        detail = {"table": str(row), "created": [], "jobs": [], "ended": [], "put_off": [], "started": jobs}
        run.write("plan_timeline", CONTEXT, target=str(row), detail=detail)
        start_tasks(run, tasks, started, passed, now_ms=now_ms)
    log.info("tasks_admitted table=%s started=%d", row, len(started))
    return len(started)


def start_tasks(
    run: Operation, tasks: Mapping[str, Task], started: Sequence[str], passed: Sequence[tuple[str, int]], *, now_ms: int
) -> None:
    """Admit the jobs of ``started`` tasks in order; count how often the ``passed`` tasks were passed over.

    The jobs are ordered by priority among those of the tenant's other tables.
    """
    rows = [
        (
            tasks[name].job_id,
            position
            + urgent_priority_ms(ready_at_ms=run.time.now_ms, priority=tasks[name].priority, unit=PRIORITY_UNIT),
        )
        for position, name in enumerate(started)
    ]
    waiting = {"state": JobState.WAITING.value}
    dialect.update_rows(Job, ("id",), ("priority_ms",), rows, to=waiting, where={"state": JobState.BLOCKED.value})
    Task.objects.filter(id__in=[tasks[name].id for name in started]).update(admitted_at_ms=now_ms)
    counts = [(tasks[name].id, count) for name, count in passed if name in tasks]
    dialect.update_rows(Task, ("id",), ("passed",), counts)


def within_budget(names: Sequence[str], sizes: Mapping[str, int], left: int | None) -> list[str]:
    """Return the leading tasks that the daily budget admits; ``left`` is its remaining bytes, None without a limit.

    The last of them may exceed the budget.
    """
    if left is None:
        return list(names)
    started = []
    for name in names:
        if left <= 0:
            break
        started.append(name)
        left -= sizes[name]
    return started
