"""Decide which waiting tasks start now, which are passed over, and which are shed because too many wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.lanes.tables.plan.model import PRIORITY_UNIT, QueuedTask, TaskState
from engine.lanes.tables.plan.policy import QueueLimits

Urgency = tuple[int, int, str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The decision about the queue: tasks to start in order, new passed-over counts, and tasks to shed.

    ``waiting`` are the tasks that remain waiting, the most urgent first.
    """

    started: tuple[QueuedTask, ...] = ()
    passed_over: tuple[QueuedTask, ...] = ()
    shed: tuple[QueuedTask, ...] = ()
    waiting: tuple[QueuedTask, ...] = ()


def urgency(task: QueuedTask, limits: QueueLimits, now_ms: int) -> Urgency:
    """Return the sort key of tasks, most urgent first: a total order, equal on every machine."""
    return (-aged(task, limits, now_ms), -task.end_ms, task.source, task.start_ms, task.name)


def aged(task: QueuedTask, limits: QueueLimits, now_ms: int) -> int:
    """Return the aged priority of a task in millionths.

    Its distance to 1 halves with every ``ageing_ms`` of waiting.
    """
    if not limits.ageing_ms:
        return task.priority
    waited = max(0, now_ms - task.waiting_since_ms)
    halvings, rest = divmod(waited, limits.ageing_ms)
    distance = PRIORITY_UNIT - task.priority
    if halvings >= distance.bit_length():
        return PRIORITY_UNIT
    upper = distance >> halvings  # linear between two halvings; integers are equal everywhere
    return PRIORITY_UNIT - (upper - (upper - (upper >> 1)) * rest // limits.ageing_ms)


def admit(
    tasks: Iterable[QueuedTask], limits: QueueLimits, *, now_ms: int, starts_tasks: bool = True, starts_max: int = 0
) -> Admission:
    """Decide which of all waiting and running tasks start, then which are shed; at most ``starts_max`` (0: any) start.

    A task may start when all its dependencies have ended. One that does not fit is passed over; this counts only if a
    later task started. After ``skips_max`` times no later task may start before it. A task above a limit by itself
    starts when nothing else runs, and then runs alone.
    """
    all_tasks = list(tasks)
    running = [task for task in all_tasks if task.state is TaskState.RUNNING]
    waiting = sorted(
        (task for task in all_tasks if task.state is TaskState.WAITING), key=lambda task: urgency(task, limits, now_ms)
    )
    started, passed = _dispatch(all_tasks, running, waiting, limits, starts_max) if starts_tasks else ([], {})
    started_names = {task.name for task in started}
    left = [passed.get(task.name, task) for task in waiting if task.name not in started_names]
    kept = left[: limits.waiting_max]
    return Admission(
        started=tuple(started),
        passed_over=tuple(task for task in kept if task.name in passed),
        shed=tuple(left[limits.waiting_max :]),
        waiting=tuple(kept),
    )


def _dispatch(
    all_tasks: Sequence[QueuedTask],
    running: Sequence[QueuedTask],
    waiting: Sequence[QueuedTask],
    limits: QueueLimits,
    starts_max: int,
) -> tuple[list[QueuedTask], dict[str, QueuedTask]]:
    unfinished = {task.name for task in all_tasks}
    count, cost = len(running), sum(task.cost for task in running)
    is_exclusive = any(runs_exclusively(task, limits) for task in running)
    started: list[QueuedTask] = []
    passed: dict[str, QueuedTask] = {}
    skipped: list[QueuedTask] = []
    for task in waiting:
        if (starts_max and len(started) >= starts_max) or is_exclusive or not _has_capacity(count, limits):
            break
        if any(name in unfinished for name in task.deps):
            continue
        if runs_exclusively(task, limits):
            fits = count == 0
        else:
            fits = not limits.running_cost_max or cost + task.cost <= limits.running_cost_max
        if fits:
            started.append(task)
            count, cost = count + 1, cost + task.cost
            is_exclusive = runs_exclusively(task, limits)
            for other in skipped:
                before = passed.get(other.name, other)
                passed[other.name] = replace(before, passed_over=other.passed_over + 1)
        elif task.passed_over >= limits.skips_max:
            break
        else:
            skipped.append(task)
    return started, passed


def runs_exclusively(task: QueuedTask, limits: QueueLimits) -> bool:
    """Return whether a task may run only when nothing else does."""
    return task.is_over_limit or bool(limits.running_cost_max and task.cost > limits.running_cost_max)


def _has_capacity(count: int, limits: QueueLimits) -> bool:
    return not limits.running_max or count < limits.running_max
