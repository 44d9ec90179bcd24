"""Tables through the one schedule: planned, admitted, merged, committed chunk by chunk; the second plan is empty."""

from __future__ import annotations

import pytest

from engine.lanes.tables.jobs import TableMergeSpec
from engine.lanes.tables.plain.manifest import read_manifest
from engine.lanes.tables.plan.policy import MB
from engine.schedule.model import JobState
from tests.webadmin.lanes.tables.conftest import World, check_timelines
from tests.webadmin.lanes.tables.fake_node import FakeNode, seen_ids
from tests.webadmin.lanes.tables.parquet_files import DAY_MS, day, put_hours, put_rows
from webadmin.lanes.tables.models import DataSource, Segment
from webadmin.lanes.tables.states import ChunkOutcome, ChunkStatus, RegistrationMode, SegmentState, TaskState
from webadmin.lanes.tables.task_models import Task, TaskChunk
from webadmin.schedule.models import Job


def test_a_day_of_hours_becomes_one_file_and_the_second_plan_is_empty(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.publish()
    before = seen_ids(world.store)
    report = world.turn()
    assert (len(report.created), report.started) == (1, 1)
    assert world.chunk(0).state == ChunkStatus.UNSTABLE
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
    assert (chunk.state, chunk.is_dirty, chunk.task) == (ChunkStatus.STABLE, False, None)
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


def test_jobs_are_blocked_until_admitted(world: World) -> None:
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
    assert sorted(Job.objects.values_list("state", flat=True)) == [JobState.BLOCKED, JobState.DONE, JobState.WAITING]
    assert world.turn().started == 0, "the commit let the next one go already"
    check_timelines()


def test_a_commit_admits_no_task_of_which_something_has_changed(world: World) -> None:
    """E11: it is made anew by the controller first."""
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000)
    for number in (0, 2):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    world.turn()
    [spec] = world.node.take()
    [waiting] = Task.objects.filter(admitted_at_ms=None)
    changed = (waiting.start_ms - day(0)) // DAY_MS
    world.add(*put_hours(world.store, changed, hours=[7]))
    world.node.finish(spec)
    assert world.node.take() == []
    assert world.turn().started == 1
    [spec] = world.node.take()
    assert len(spec.chunks[0].files) == 3
    check_timelines()


def test_a_commit_admits_nothing_of_a_table_that_is_paused(world: World) -> None:
    world.set(running_max=1, small_cost=1, task_cost_max=100_000_000)
    for number in (0, 2):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    world.turn()
    [spec] = world.node.take()
    world.set(is_paused=True)
    world.node.finish(spec)
    assert world.node.take() == []


MEGABYTES = {"A": 900, "B": 4_500, "C": 1_080, "D": 480, "E": 3_500, "F": 1_002}


@pytest.mark.row("X17")
def test_a_large_task_reserves_slots_after_it_was_skipped(world: World) -> None:
    """X17, its costs to the byte; the newer of two days is the more urgent, so that A comes first and F last."""
    world.set(
        running_max=2,
        running_cost_max=5_000 * MB,
        waiting_max=3,
        skips_max=2,
        open_cost=0,
        segment_bytes_max=5_000 * MB,
        task_cost_max=10_000 * MB,
        small_cost=1,
        weight_recency=100,
        weight_fragmentation=0,
        weight_oversize=0,
        weight_alignment=0,
    )
    names = {day(50 - 5 * place): name for place, name in enumerate(MEGABYTES)}
    for start, name in names.items():
        paths = put_hours(world.store, (start - day(0)) // DAY_MS, hours=[1, 5])
        world.add(*paths)
        Segment.objects.filter(path__in=paths).update(size_bytes=MEGABYTES[name] * MB // 2)
    held: dict[str, TableMergeSpec] = {}

    def queue() -> tuple[str, str]:
        for spec in world.node.take(10):
            held[names[spec.chunks[0].start_ms]] = spec
        open_tasks = Task.objects.filter(state=TaskState.OPEN).order_by("-start_ms")
        running = [names[task.start_ms] for task in open_tasks if task.admitted_at_ms is not None]
        waiting = [names[task.start_ms] for task in open_tasks if task.admitted_at_ms is None]
        assert sorted(running) == sorted(held), "what runs has a worker, and nothing else has"
        return "".join(running), "".join(waiting)

    def end(name: str) -> tuple[str, str]:
        world.node.finish(held.pop(name))
        return queue()

    world.turn()
    assert queue() == ("AC", "BDE")
    assert world.chunk(25).state == ChunkStatus.DEFERRED
    assert Task.objects.get(start_ms=day(45)).passed == 1
    assert end("A") == ("CD", "BE")
    assert Task.objects.get(start_ms=day(45)).passed == 2
    assert end("C") == ("BD", "E")
    assert end("D") == ("B", "E")
    assert end("B") == ("E", "")
    world.turn()
    assert queue() == ("EF", ""), "nothing waits: what was put off comes back, by the priority it had"
    assert world.chunk(25).analyses == 1
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
    assert world.chunk(5).state == ChunkStatus.UNSTABLE, "two files, where one would do"


def test_a_clock_that_goes_back_hides_no_rows(world: World) -> None:
    """E25: what is committed or comes later has the higher version, whatever the clock says."""
    world.add(*put_hours(world.store, 5, hours=[1, 5]))
    world.turn()
    [spec] = world.node.take()
    before = set(Segment.objects.values_list("version", flat=True))
    world.service.clock.now_ms -= 30 * DAY_MS
    world.node.finish(spec)
    [merged] = Segment.objects.filter(state=SegmentState.VISIBLE)
    assert merged.version > max(before)
    put_rows(world.store, "new.parquet", [day(5) + 1], first_id=99)
    world.add("new.parquet", mode=RegistrationMode.REPLACE, interval=(day(5), day(6)))
    assert Segment.objects.get(state=SegmentState.VISIBLE).version > merged.version
    world.publish()
    assert seen_ids(world.store) == [99]
    check_timelines()


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
    assert world.chunk(5).state == ChunkStatus.STABLE


@pytest.mark.row("tables-invariant-17")
def test_a_merge_result_after_a_lost_lease_changes_nothing(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.turn()
    [spec] = world.node.take()
    late = world.node.success(spec)
    other = FakeNode(world.service.worker())
    taken = []
    while not taken:  # time goes on by a lease at most from one poll to the next
        world.service.clock.advance(20)
        taken = other.take()
    [again] = taken
    assert again.fence > spec.fence
    before = list(Segment.objects.order_by("id").values())
    world.node.worker.poll(late, capacity=0)
    assert list(Segment.objects.order_by("id").values()) == before
    other.finish(again)
    [merged] = Segment.objects.filter(state=SegmentState.VISIBLE)
    assert merged.path in {file.path for file in other.merge(again).outputs}
    check_timelines()


@pytest.mark.row("tables-invariant-18")
def test_every_chunk_with_data_has_a_state_and_a_reason(world: World) -> None:
    world.set(running_max=1, waiting_max=1, small_cost=1, task_cost_max=100_000_000)
    for number in (0, 2, 4):
        world.add(*put_hours(world.store, number, hours=[1, 5]))
    put_rows(world.store, "over-midnight.parquet", [day(7) - 1, day(7)])
    world.add("over-midnight.parquet", *put_hours(world.store, 10, hours=[1]))
    world.turn()
    told = {chunk.start_ms: (chunk.state, bool(chunk.reason)) for chunk in world.table.chunks.all()}
    in_tasks, put_off = (ChunkStatus.UNSTABLE, True), (ChunkStatus.DEFERRED, True)
    good = dict.fromkeys([day(6), day(7), day(10)], (ChunkStatus.STABLE, True))
    assert told == {day(4): in_tasks, day(2): in_tasks, day(0): put_off} | good
