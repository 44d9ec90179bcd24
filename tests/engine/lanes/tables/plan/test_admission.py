"""What holds of the queue, whatever comes, starts and ends in whichever order (I12 and I13)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.lanes.tables.plan.admission import Admission, admit, runs_exclusively, urgency
from engine.lanes.tables.plan.model import QueuedTask, TaskState
from engine.lanes.tables.plan.policy import QueueLimits

COST_MAX = 10
limits_of_queues = st.builds(
    QueueLimits,
    running_max=st.integers(0, 3),
    running_cost_max=st.sampled_from([0, COST_MAX]),
    waiting_max=st.integers(1, 4),
    skips_max=st.integers(0, 2),
)


@st.composite
def tasks(draw: st.DrawFn, most: int = 12) -> list[QueuedTask]:
    """Return tasks that have just come; some wait for others that came before them."""
    found: list[QueuedTask] = []
    for number in range(draw(st.integers(0, most))):
        start_ms = draw(st.integers(0, 3))
        found.append(
            QueuedTask(
                name=f"T{number:02d}",
                source=draw(st.sampled_from(["s1", "s2"])),
                end_ms=start_ms + 1,
                chunk_digests=((start_ms, ""),),
                cost=draw(st.integers(1, COST_MAX + 2)),
                priority=draw(st.integers(1, 4)),
                is_over_limit=draw(st.sampled_from([False, False, False, True])),
                deps=tuple(one.name for one in found if draw(st.integers(0, 9)) == 0),
            )
        )
    return found


def after(queue: Iterable[QueuedTask], admission: Admission) -> list[QueuedTask]:
    """Return the queue as the admission leaves it."""
    running = [task for task in queue if task.state is TaskState.RUNNING]
    return [*running, *(replace(task, state=TaskState.RUNNING) for task in admission.started), *admission.waiting]


def best(waiting: Iterable[QueuedTask], limits: QueueLimits) -> list[str]:
    """Return the names of the tasks that may wait, the most urgent first."""
    return [task.name for task in sorted(waiting, key=lambda task: urgency(task, limits, 0))][: limits.waiting_max]


@pytest.mark.row("tables-invariant-13")
@settings(max_examples=80, deadline=None)
@given(tasks(), limits_of_queues, st.randoms(use_true_random=False))
def test_the_most_urgent_tasks_wait_in_any_order_of_arrival(
    arrivals: list[QueuedTask], limits: QueueLimits, chance: Random
) -> None:
    mixed = list(arrivals)
    chance.shuffle(mixed)
    queue: list[QueuedTask] = []
    for task in mixed:
        queue = list(admit([*queue, task], limits, now_ms=0, starts_tasks=False).waiting)
    assert [task.name for task in queue] == best(arrivals, limits)


@pytest.mark.slow
@pytest.mark.row("tables-invariant-12", "tables-invariant-13")
@settings(max_examples=80, deadline=None)
@given(st.lists(tasks(6), max_size=5), limits_of_queues, st.data())
def test_limits_hold_and_the_most_urgent_of_the_rest_wait(
    rounds: list[list[QueuedTask]], limits: QueueLimits, data: st.DataObject
) -> None:
    queue: list[QueuedTask] = []
    for number, arrivals in enumerate(rounds):
        queue += [_renamed(task, number) for task in arrivals]
        found = admit(queue, limits, now_ms=0)
        _check(queue, found, limits)
        queue = after(queue, found)
        done = data.draw(st.sets(st.sampled_from([one.name for one in queue]))) if queue else set()
        queue = [task for task in queue if task.state is TaskState.WAITING or task.name not in done]


def _renamed(task: QueuedTask, number: int) -> QueuedTask:
    return replace(task, name=f"R{number}{task.name}", deps=tuple(f"R{number}{name}" for name in task.deps))


def _check(queue: Sequence[QueuedTask], found: Admission, limits: QueueLimits) -> None:
    running = [task for task in after(queue, found) if task.state is TaskState.RUNNING]
    assert len(found.waiting) <= limits.waiting_max
    assert not limits.running_max or len(running) <= limits.running_max
    assert not limits.running_cost_max or sum(one.cost for one in running) <= COST_MAX or len(running) == 1
    assert len(running) == 1 or not any(runs_exclusively(task, limits) for task in running)
    started = {task.name for task in found.started}
    left = [task for task in queue if task.state is TaskState.WAITING and task.name not in started]
    assert [task.name for task in found.waiting] == best(left, limits)
    assert {task.name for task in found.shed} == {task.name for task in left} - {task.name for task in found.waiting}
    alive = {task.name for task in queue}
    for task in found.started:
        assert alive.isdisjoint(task.deps)
        for other in left:
            if other.passed_over >= limits.skips_max and alive.isdisjoint(other.deps):
                assert urgency(task, limits, 0) < urgency(other, limits, 0), "nothing overtakes who has a reservation"
    counts = {task.name: task.passed_over for task in queue}
    assert all(task.passed_over == counts[task.name] + 1 for task in found.passed_over)
