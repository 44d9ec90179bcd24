"""Tables through the one schedule: planned, admitted, merged, committed chunk by chunk; the second plan is empty."""

from __future__ import annotations

from engine.scheduling.model import JobState
from engine.tables.manifest import read_manifest
from tests.webadmin.timeline.conftest import World, check_timelines
from tests.webadmin.timeline.fake_node import seen_ids
from tests.webadmin.timeline.parquet_files import day, put_hours, put_rows
from webadmin.schedule.models import Job
from webadmin.timeline.models import DataSource, Segment
from webadmin.timeline.states import ChunkOutcome, ChunkStanding, RegistrationMode, SegmentState, TaskState
from webadmin.timeline.task_models import Task, TaskChunk


def test_a_day_of_hours_becomes_one_file_and_the_second_plan_is_empty(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.publish()
    before = seen_ids(world.store)
    report = world.turn()
    assert (len(report.created), report.started) == (1, 1)
    assert world.chunk(0).state == ChunkStanding.UNSTABLE
    [spec] = world.node.take()
    assert sum(file.rows for chunk in spec.chunks for file in chunk.files) == 72
    world.node.finish(spec)
    assert seen_ids(world.store) == before, "the pointer has not moved yet"
    world.publish()
    assert seen_ids(world.store) == before
    manifest = read_manifest(world.store)
    assert manifest is not None
    assert len(manifest.files) == 1
    assert world.turn().created == []
    chunk = world.chunk(0)
    assert (chunk.state, chunk.is_dirty, chunk.task) == (ChunkStanding.STABLE, False, None)
    assert Task.objects.get().state == TaskState.DONE
    check_timelines()


def test_months_of_small_files_come_to_rest_with_every_row(world: World) -> None:
    for number in range(0, 30, 3):
        world.add(*put_hours(world.store, number, hours=[1, 5, 9]))
    put_rows(world.store, "over-midnight.parquet", [day(4) - 1, day(4), day(4) + 5], first_id=10**6)
    world.add("over-midnight.parquet")
    world.publish()
    before = seen_ids(world.store)
    assert world.work_off() > 0
    world.publish()
    assert seen_ids(world.store) == before
    table = DataSource.objects.get()
    assert table.published == table.sequence
    assert not Task.objects.filter(state=TaskState.OPEN).exists()
    check_timelines()


def test_jobs_wait_blocked_until_it_is_their_turn(world: World) -> None:
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000)
    for number in (0, 2, 4):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    assert world.turn().started == 1
    states = sorted(Job.objects.values_list("state", flat=True))
    assert states == [JobState.BLOCKED, JobState.BLOCKED, JobState.WAITING]
    [spec] = world.node.take(5)
    assert world.node.take(5) == []
    assert world.turn().started == 0
    world.node.finish(spec)
    assert world.turn().started == 1
    check_timelines()


def test_late_data_stays_beside_what_was_merged_meanwhile(world: World) -> None:
    """X19: the 25th file of a day comes while the other 24 are merged."""
    world.add(*put_hours(world.store, 5))
    world.turn()
    [spec] = world.node.take()
    result = world.node.merge(spec)
    put_rows(world.store, "day-005/late.parquet", [day(5) + 1], first_id=77)
    world.add("day-005/late.parquet")
    world.node.worker.poll(world.node.success(spec, result), capacity=0)
    assert TaskChunk.objects.get().outcome == ChunkOutcome.CARRIED_OVER
    there = Segment.objects.filter(state=SegmentState.VISIBLE)
    assert there.count() == 2
    assert len(set(there.values_list("version", "start_ms", "end_ms"))) == 1
    world.publish()
    assert seen_ids(world.store).count(77) == 1
    world.turn()
    assert world.chunk(5).state == ChunkStanding.UNSTABLE, "two files, where one would do"


def test_what_replaces_a_day_wins_over_its_merge(world: World) -> None:
    """X20: the day is replaced while it is merged."""
    world.add(*put_hours(world.store, 5))
    world.turn()
    [spec] = world.node.take()
    result = world.node.merge(spec)
    put_rows(world.store, "new.parquet", [day(5) + 1], first_id=99)
    world.add("new.parquet", mode=RegistrationMode.REPLACE, interval=(day(5), day(6)))
    world.node.worker.poll(world.node.success(spec, result), capacity=0)
    chunk = TaskChunk.objects.get()
    assert (chunk.outcome, chunk.is_open) == (ChunkOutcome.ABORTED, False)
    world.publish()
    assert seen_ids(world.store) == [99]
    world.turn()
    assert world.chunk(5).state == ChunkStanding.STABLE
