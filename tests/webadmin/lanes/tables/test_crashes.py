"""A process that is killed at any statement of what it does to a table has done all of it or nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from tests.webadmin.lanes.tables.conftest import World, check_timelines
from tests.webadmin.lanes.tables.fake_node import seen_ids
from tests.webadmin.lanes.tables.parquet_files import put_hours
from webadmin.lanes.tables.models import Chunk, DataSource, Registration, Segment
from webadmin.lanes.tables.states import ChunkStatus, TaskState
from webadmin.lanes.tables.task_models import DiscardedOutput, Task, TaskChunk, TaskDependency, TaskSegment
from webadmin.schedule.models import Attempt, Command, Job

MODELS = (
    *(Segment, Registration, Chunk, DataSource, Task, TaskChunk, TaskSegment, TaskDependency, DiscardedOutput),
    *(Job, Attempt, Command),
)
STATEMENTS_MAX = 500


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(place: int) -> Iterator[None]:
    """End the process before the ``place``-th statement."""
    count = 0

    def killing(execute: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == place:
            raise Killed
        return execute(*arguments)

    with connection.execute_wrapper(killing):
        yield


def rows() -> list[list[dict[str, Any]]]:
    return [list(model.objects.order_by("pk").values()) for model in MODELS]


def kill_everywhere(act: Callable[[], object], is_done: Callable[[], bool]) -> int:
    """Kill ``act`` before its first statement, its second, and so on until it has its effect; return how often."""
    before = rows()
    for place in range(1, STATEMENTS_MAX):
        try:
            with killed_at(place):
                act()
        except Killed:
            if not is_done():
                assert rows() == before, f"something is left of what was killed before its statement {place}"
                continue
        assert is_done()
        check_timelines()
        return place - 1
    raise AssertionError("it takes more statements than anybody would")


def test_registrations_cycles_and_commits_are_atomic(world: World) -> None:
    world.add(*put_hours(world.store, 0, hours=[1, 5]), *put_hours(world.store, 2, hours=[1, 5]))
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000)
    late = put_hours(world.store, 2, hours=[7])
    assert kill_everywhere(lambda: world.add(*late), lambda: Segment.objects.count() == 5) > 5
    world.publish()
    ids = seen_ids(world.store)
    assert kill_everywhere(world.turn, Task.objects.exists) > 10
    [spec] = world.node.take()
    result = world.node.merge(spec)

    def report() -> None:
        world.node.worker.poll(world.node.success(spec, result), capacity=0)

    def is_committed() -> bool:
        return Task.objects.filter(state=TaskState.DONE).exists()

    assert kill_everywhere(report, is_committed) > 10
    world.publish()
    assert seen_ids(world.store) == ids
    assert world.work_off() == 1
    world.publish()
    assert seen_ids(world.store) == ids
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkStatus.STABLE}
