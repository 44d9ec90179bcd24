"""Concurrent controllers, stale snapshots, restarts, overload, chunk overrides, a day's budget: nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from engine.schedule.model import JobState
from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tables.conftest import CONTEXT, World, check_timelines
from tests.webadmin.lanes.tables.fake_node import FakeNode, seen_ids
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows
from tests.webadmin.schedule.test_replay import log, replayed
from tests.webadmin.schedule.test_two_connections import at_once
from tests.webadmin.service import Service
from webadmin.lanes.tables.cycle_view import read_cycle
from webadmin.lanes.tables.models import Chunk, ChunkOverride, DataSource
from webadmin.lanes.tables.services import run_cycle
from webadmin.lanes.tables.services.overrides import end_overrides, override_chunks
from webadmin.lanes.tables.services.run_cycle import run_source_cycle
from webadmin.lanes.tables.services.sources import NewTable, create_table
from webadmin.lanes.tables.states import ChunkOverrideKind, ChunkStatus, RegistrationMode, TaskState
from webadmin.lanes.tables.task_models import Task, TaskChunk
from webadmin.schedule.models import Job

NEVER, NOW = ChunkOverrideKind.NEVER, ChunkOverrideKind.NOW
APART = {"small_cost": 1, "task_cost_max": 100_000_000}
"""Every chunk is a task of its own."""


def days(world: World, *numbers: int) -> None:
    for number in numbers:
        world.add(*put_hours(world.store, number, hours=[1, 5]))


def test_two_controllers_make_every_task_once(real_service: Service, new_table: NewTable, store: ObjectStore) -> None:
    real_service.clock.now_ms = day(60)
    table = create_table(new_table, context=CONTEXT)
    world = World(table, store, FakeNode(real_service.worker()), real_service)
    world.set(**APART)
    days(world, 0, 2, 4)
    reports = at_once(lambda: run_source_cycle(table), lambda: run_source_cycle(table))
    assert sum(len(report.created) for report in reports) == 3
    assert (Task.objects.count(), TaskChunk.objects.count(), Job.objects.count()) == (3, 3, 3)
    check_timelines()
    assert world.work_off() == 3
    world.publish()
    assert len(seen_ids(world.store)) == 18
    check_timelines()


@pytest.mark.parametrize("mode", [RegistrationMode.APPEND, RegistrationMode.REPLACE])
def test_files_that_come_while_a_task_is_committed_are_in_the_table_once(
    real_service: Service, new_table: NewTable, store: ObjectStore, mode: RegistrationMode
) -> None:
    """Who comes first decides what becomes of the chunk; readers see the same rows either way."""
    real_service.clock.now_ms = day(60)
    world = World(create_table(new_table, context=CONTEXT), store, FakeNode(real_service.worker()), real_service)
    days(world, 0)
    world.turn()
    [spec] = world.node.take()
    put_rows(store, "late.parquet", [day(0)], first_id=7)
    told = {"interval": (day(0), day(1))} if mode is RegistrationMode.REPLACE else {}
    at_once(lambda: world.node.finish(spec), lambda: world.add("late.parquet", mode=mode, **told))
    check_timelines()
    ids = {7} if told else {7, *range(1000, 1003), *range(5000, 5003)}
    at_once(world.publish, world.publish)
    assert seen_ids(store) == sorted(ids)
    world.work_off()
    world.publish()
    assert seen_ids(store) == sorted(ids)
    check_timelines()


def test_a_cycle_that_read_before_a_commit_is_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """E29: what is planned rests on a timeline read after the last commit."""
    days(world, 0)
    world.turn()
    [spec] = world.node.take()
    decide, turns = run_cycle.run_cycle, 0

    def late(snapshot: Any) -> Any:
        nonlocal turns
        turns += 1
        if turns == 1:
            world.node.finish(spec)
        return decide(snapshot)

    Chunk.objects.update(is_dirty=True)
    DataSource.objects.update(is_dirty=True)
    monkeypatch.setattr(run_cycle, "run_cycle", late)
    assert world.turn().created == []
    assert turns == 2
    assert world.chunk(0).state == ChunkStatus.STABLE
    check_timelines()


def test_a_cycle_reads_only_changed_chunks(world: World) -> None:
    """The planner is incremental: of a long timeline it reads the changed chunks and the rows of the queue."""
    world.set(**APART, running_max=1, waiting_max=2)
    days(world, *range(0, 40, 2))
    world.turn()
    world.add(*put_hours(world.store, 30, hours=[7]))
    [told] = read_cycle(world.table, room=10).snapshot.sources
    assert {segment.start_ms for segment in told.segments} == {day(30)}
    assert len(told.segments) == 3
    assert day(30) in {row.chunk.start_ms for row in told.rows}
    assert len(told.rows) <= 3, "the chunk that changed, and the best two that were put off"


def test_after_a_restart_only_the_rest_is_done(world: World) -> None:
    """X21 and I9: what was committed is not planned again, what was not is."""
    world.set(**APART, running_max=2)
    days(world, 0, 2, 4)
    world.turn()
    world.node.finish(*world.node.take(1))
    Chunk.objects.update(is_dirty=True)  # a controller that knows nothing but the rows looks at everything
    DataSource.objects.update(is_dirty=True)
    world.turn()
    starts = TaskChunk.objects.values_list("start_ms", flat=True)
    assert sorted(starts) == [day(0), day(2), day(4)]
    assert world.work_off() == 2
    check_timelines()


def test_what_does_not_fit_the_queue_is_put_off_and_never_looked_at_again_for_it(world: World) -> None:
    world.set(**APART, running_max=1, waiting_max=2)
    days(world, *range(0, 12, 2))
    world.turn()
    assert Task.objects.filter(state=TaskState.OPEN).count() == 3
    assert Chunk.objects.filter(state=ChunkStatus.DEFERRED).count() == 3
    for _ in range(3):
        assert world.turn().analysed == 0
    assert world.work_off() == 6
    assert set(Chunk.objects.values_list("state", flat=True)) == {ChunkStatus.STABLE}
    assert set(Chunk.objects.values_list("analyses", flat=True)) == {2}, "once when it came, once when it was merged"
    check_timelines()


def test_never_and_now_are_obeyed(world: World) -> None:
    world.set(**APART, running_max=1)
    override_chunks(world.table, (day(4), day(5)), NEVER, context=CONTEXT)
    days(world, 0, 2, 4)
    world.turn()
    assert world.chunk(4).state == ChunkStatus.SKIPPED
    assert "excluded" in world.chunk(4).reason
    assert sorted(TaskChunk.objects.values_list("start_ms", flat=True)) == [day(0), day(2)]
    world.work_off()
    assert end_overrides(world.table, (day(4), day(5)), NEVER, context=CONTEXT) == 1
    override_chunks(world.table, (day(4), day(4) + 1), NOW, context=CONTEXT)
    world.turn()
    assert Task.objects.get(state=TaskState.OPEN).is_ordered
    world.work_off()
    assert not ChunkOverride.objects.filter(ended_at_ms=None).exists(), "it was done"


def test_a_task_that_waits_already_is_next_when_it_is_wanted_now(world: World) -> None:
    world.set(**APART, running_max=1)
    days(world, 0, 2, 4)
    world.turn()
    override_chunks(world.table, (day(0), day(1)), NOW, context=CONTEXT)
    world.turn()
    assert not Task.objects.get(start_ms=day(0)).admitted_at_ms, "another runs"
    world.node.finish(*world.node.take())
    world.turn()
    [spec] = world.node.take()
    assert [chunk.start_ms for chunk in spec.chunks] == [day(0)], "though day 2 is newer"
    check_timelines()


@pytest.mark.row("E24")
def test_the_more_urgent_task_of_a_tenants_tables_comes_first(world: World) -> None:
    world.add(*put_hours(world.store, 0, hours=[1, 5]))
    world.turn()
    store = open_store(f"{world.store.url}-2")
    new = NewTable(tenant="acme", name="other", url=store.url, time_column="ts")
    other = World(create_table(new, context=CONTEXT), store, world.node, world.service)
    world.service.clock.now_ms += 60_000
    other.add(*put_hours(store, 50))
    other.turn()
    first, second = [spec.source for _ in range(2) for spec in world.node.take()]
    assert (first, second) == ("other", "events"), "24 files of last week before 2 of two months ago"


def test_the_budget_of_a_day_holds_tasks_back_until_the_next(world: World) -> None:
    world.set(**APART, bytes_per_day=1)
    days(world, 0, 2)
    assert world.turn().started == 1, "the last that begins may go over it"
    assert world.turn().started == 0
    world.node.finish(*world.node.take())
    assert world.turn().started == 0
    world.service.clock.now_ms += 86_400_000
    assert world.turn().started == 1


def test_a_paused_table_is_not_planned(world: World) -> None:
    days(world, 0)
    world.set(is_paused=True)
    assert run_cycle.due_tables(world.service.clock.now_ms, 10) == []
    world.set(is_paused=False)
    assert run_cycle.due_tables(world.service.clock.now_ms, 10) == [world.table]


def test_other_chunks_end_the_tasks_of_the_old_ones(world: World) -> None:
    days(world, 0)
    world.turn()
    [spec] = world.node.take()
    result = world.node.merge(spec)
    world.set(granularity="week")
    world.turn()
    assert Job.objects.get(name=spec.job).state == JobState.DISSOLVED
    world.node.worker.poll(world.node.success(spec, result), capacity=0)
    world.publish()
    assert len(seen_ids(world.store)) == 6
    world.work_off()
    world.publish()
    assert len(seen_ids(world.store)) == 6
    check_timelines()


def test_a_table_whose_rows_contradict_each_other_is_left_alone_with_the_reason(world: World) -> None:
    days(world, 0)
    segment = world.table.segments.first()
    assert segment is not None
    segment.pk, segment.path, segment.partition = None, "other.parquet", 7
    segment.start_ms, segment.end_ms, segment.is_spanning = day(-1), day(1), True
    segment.save()
    DataSource.objects.update(is_dirty=True)
    report = world.turn()
    assert report.refusal
    assert not Task.objects.exists()
    assert DataSource.objects.get().refusal == report.refusal


def test_tenants_share_nothing(world: World, service: Service) -> None:
    days(world, 0)
    new = NewTable(tenant="beta", name="events", url=f"{world.store.url}-beta", time_column="ts")
    other = create_table(new, context=CONTEXT)
    world.turn()
    assert run_source_cycle(other).created == []
    assert not other.segments.exists()
    assert {job.tenant for job in Job.objects.all()} == {"acme"}


def test_the_command_log_replays_to_the_jobs_of_tables(world: World) -> None:
    world.set(**APART, running_max=1, waiting_max=2)
    days(world, *range(0, 8, 2))
    world.turn()
    world.node.finish(*world.node.take())
    world.set(granularity="week")
    for _ in range(3):
        world.turn()
    kept = dict(Job.objects.order_by("id").values_list("name", "state"))
    assert {name: job.state.value for name, job in replayed(log()).jobs.items()} == kept
