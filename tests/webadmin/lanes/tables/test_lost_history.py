"""A rescan counts every row once: beside a running merge, and after the database has lost a history of the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.core import serializers

from engine.core.errors import BadObject
from engine.lanes.tables.plain.manifest import POINTER, read_manifest, read_pointer
from tests.webadmin.lanes.tables.conftest import CONTEXT, World, check_timelines
from tests.webadmin.lanes.tables.fake_node import seen_ids
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows
from webadmin.lanes.tables.models import BadFile, Chunk, DataSource, Policy, Registration, Segment
from webadmin.lanes.tables.services.adopt_table import adopt_table, rescan_table
from webadmin.lanes.tables.services.clean_table import clean_table
from webadmin.lanes.tables.services.end_tasks import SWEEP_DELAY_MS
from webadmin.lanes.tables.services.publish_manifest import PointerAhead
from webadmin.lanes.tables.services.sources import NewTable
from webadmin.lanes.tables.task_models import DiscardedOutput, Manifest, Task, TaskChunk, TaskDependency, TaskSegment
from webadmin.schedule.models import Job

MODELS = (DataSource, Policy, Registration, Task, TaskDependency, TaskChunk, Segment, TaskSegment, Chunk, BadFile)
MODELS += (Manifest, DiscardedOutput)
DELAY_MS = 7_200_000


def table_rows() -> Callable[[], None]:
    """Copy the rows of tables; return a function that brings the database back to them."""
    kept = serializers.serialize("json", [row for model in MODELS for row in model.objects.all()])

    def restore() -> None:
        DiscardedOutput.objects.all().delete()
        Segment.objects.all().delete()
        Task.objects.all().delete()
        DataSource.objects.all().delete()
        for row in serializers.deserialize("json", kept):
            row.save()

    return restore


@pytest.fixture
def ids(world: World) -> list[int]:
    """The ids of a published day of 24 files."""
    world.add(*put_hours(world.store, 0))
    world.publish()
    return seen_ids(world.store)


def merge(world: World) -> None:
    world.turn()
    world.node.finish(*world.node.take())


def rescan(world: World) -> dict[str, int]:
    """Rescan the table; return the number of files of each status."""
    statuses = dict(rescan_table(DataSource.objects.get(), world.store, context=CONTEXT).statuses)
    check_timelines()
    return statuses


def test_a_rescan_leaves_the_results_of_a_running_merge_alone(world: World, ids: list[int]) -> None:
    world.turn()
    [spec] = world.node.take()
    result = world.node.merge(spec)
    assert rescan(world) == {"known": 24, "unknown_output": 1}
    assert seen_ids(world.store) == ids
    world.node.worker.poll(world.node.success(spec, result), capacity=0)
    world.publish()
    assert seen_ids(world.store) == ids
    assert Segment.objects.filter(state="visible").count() == 1


def test_results_of_a_swap_that_was_lost_before_it_was_published_stay_out(world: World, ids: list[int]) -> None:
    restore = table_rows()
    merge(world)
    restore()
    assert rescan(world) == {"known": 24, "unknown_output": 1}
    assert seen_ids(world.store) == ids


def test_results_of_a_lost_history_replace_their_sources(world: World, ids: list[int]) -> None:
    restore = table_rows()
    merge(world)
    world.publish()
    restore()
    assert rescan(world) == {"known": 24, "registered": 1}
    assert seen_ids(world.store) == ids
    assert Segment.objects.filter(state="visible").count() == 1
    world.service.clock.now_ms += DELAY_MS
    assert clean_table(DataSource.objects.get(), world.store).files == 24
    assert seen_ids(world.store) == ids
    assert rescan(world) == {"known": 1}


def test_sources_that_only_the_lost_history_had_are_not_registered_beside_their_results(
    world: World, ids: list[int]
) -> None:
    restore = table_rows()
    late = put_hours(world.store, 1, hours=[3, 4])
    world.add(*late)
    world.publish()
    expected = seen_ids(world.store)
    assert len(expected) == len(ids) + 6
    world.work_off()
    world.publish()
    restore()
    put_rows(world.store, "new.parquet", [day(1) + 5], first_id=7)
    assert rescan(world)["replaced_before"] == 2
    assert seen_ids(world.store) == sorted([*expected, 7])


def test_what_was_merged_since_the_database_went_back_counts_once(world: World, ids: list[int]) -> None:
    """The database merges the same day again, with a file that was registered since."""
    restore = table_rows()
    merge(world)
    world.publish()
    restore()
    put_rows(world.store, "day-000/since.parquet", [day(0) + 5], first_id=7)
    world.add("day-000/since.parquet")
    Job.objects.all().delete()
    assert world.work_off() == 1
    assert Segment.objects.filter(state="visible").count() == 1
    with pytest.raises(PointerAhead):
        world.publish()
    rescan(world)
    assert seen_ids(world.store) == sorted([*ids, 7])
    world.work_off()
    world.publish()
    assert seen_ids(world.store) == sorted([*ids, 7])


def test_a_table_that_has_more_changes_than_the_lost_history_is_not_published_either(
    world: World, ids: list[int]
) -> None:
    restore = table_rows()
    merge(world)
    world.publish()
    restore()
    pointer = read_pointer(world.store)
    DataSource.objects.update(sequence=100)
    with pytest.raises(PointerAhead):
        world.publish()
    assert read_pointer(world.store) == pointer
    rescan(world)
    assert seen_ids(world.store) == ids


def test_a_folder_whose_database_is_gone_is_adopted_by_its_manifest(
    world: World, new_table: NewTable, ids: list[int]
) -> None:
    merge(world)
    world.publish()
    Segment.objects.all().delete()
    Task.objects.all().delete()
    DataSource.objects.all().delete()
    put_rows(world.store, "new.parquet", [day(1)], first_id=7)
    adopted = adopt_table(new_table, world.store, context=CONTEXT)
    assert adopted.statuses == {"registered": 2, "replaced_before": 24}
    assert seen_ids(world.store) == sorted([*ids, 7])


def test_a_copy_of_merged_files_without_manifests_is_adopted(world: World, new_table: NewTable, ids: list[int]) -> None:
    merge(world)
    [output] = Segment.objects.filter(state="visible").values_list("path", flat=True)
    for info in list(world.store.list()):
        if info.key != output:
            world.store.delete(info.key)
    Segment.objects.all().delete()
    Task.objects.all().delete()
    DataSource.objects.all().delete()
    assert adopt_table(new_table, world.store, context=CONTEXT).statuses == {"registered": 1}
    assert seen_ids(world.store) == ids


@pytest.mark.parametrize("is_manifest", [False, True])
def test_nothing_is_hidden_for_a_manifest_that_cannot_be_followed(
    world: World, ids: list[int], is_manifest: bool
) -> None:
    restore = table_rows()
    merge(world)
    world.publish()
    manifest = read_manifest(world.store)
    pointer = read_pointer(world.store)
    assert manifest is not None
    assert pointer is not None
    restore()
    world.store.delete(pointer.manifest if is_manifest else manifest.files[0].path)
    with pytest.raises(BadObject, match=r"delete _lithify/current\.json"):
        rescan(world)
    assert Segment.objects.filter(state="visible").count() == 24
    world.store.delete(POINTER)
    DataSource.objects.update(sequence=100)
    world.publish()
    assert seen_ids(world.store) == ids


def test_a_damaged_result_of_a_lost_history_replaces_nothing(world: World, ids: list[int]) -> None:
    restore = table_rows()
    merge(world)
    world.publish()
    manifest = read_manifest(world.store)
    assert manifest is not None
    restore()
    [output] = manifest.files
    good = world.store.get(output.path)
    world.store.put(output.path, bytes(len(good)))
    pointer = read_pointer(world.store)
    assert rescan(world)["not_published"] == 1
    assert read_pointer(world.store) == pointer
    world.service.clock.now_ms += 10 * DELAY_MS
    assert clean_table(DataSource.objects.get(), world.store).files == 0
    world.store.put(output.path, good)
    rescan(world)
    assert seen_ids(world.store) == ids


def test_no_result_of_a_lost_history_is_swept_as_one_that_was_discarded(world: World, ids: list[int]) -> None:
    restore = table_rows()
    merge(world)
    world.publish()
    [output] = Segment.objects.filter(state="visible")
    restore()
    now_ms = world.service.clock.now_ms
    DiscardedOutput.objects.create(
        source=DataSource.objects.get(),
        path=output.path,
        reason="a run left it",
        created_at_ms=now_ms,
        delete_at_ms=now_ms,
    )
    world.service.clock.now_ms += SWEEP_DELAY_MS
    assert clean_table(DataSource.objects.get(), world.store).outputs == 0
    rescan(world)
    assert clean_table(DataSource.objects.get(), world.store).outputs == 0
    assert seen_ids(world.store) == ids
