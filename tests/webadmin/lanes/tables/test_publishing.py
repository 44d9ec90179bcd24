"""Readers see whole states, in order, whatever fails in between; unreferenced files are deleted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.conf import settings

from engine.core.errors import BadObject
from engine.lanes.tables.merge import merge_job
from engine.lanes.tables.plain.manifest import (
    POINTER,
    Pointer,
    encode_manifest,
    encode_pointer,
    manifest_key,
    read_manifest,
    read_pointer,
    write_manifest,
)
from engine.lanes.tables.plain.manifest import Manifest as TableManifest
from engine.protocol.messages import FailureReason
from engine.storage import ObjectStore, StorageError, cached_store, open_store
from tests.webadmin.lanes.tables.conftest import CONTEXT, World, check_timelines
from tests.webadmin.lanes.tables.fake_node import seen_ids
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_lies, put_rows, read_ids
from webadmin.lanes.tables.models import BadFile, DataSource, Segment
from webadmin.lanes.tables.services.adopt_table import rescan_table
from webadmin.lanes.tables.services.clean_table import CleanReport, clean_table
from webadmin.lanes.tables.services.end_tasks import SWEEP_DELAY_MS
from webadmin.lanes.tables.services.publish_manifest import PointerAhead, publish_manifest
from webadmin.lanes.tables.services.rounds import clean_tables, plan_tables, publish_tables, settle_failures
from webadmin.lanes.tables.services.settle_failures import FAILED_TASKS_MAX, read_alone
from webadmin.lanes.tables.states import ChunkOutcome, ChunkStatus, RegistrationMode, SegmentState, TaskState
from webadmin.lanes.tables.task_models import DiscardedOutput, Manifest, Task, TaskChunk
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.services import guard_deletions

DELAY_MS = 7_200_000


class Killed(BaseException):
    """The process ends here."""


@dataclass
class DyingStore:
    """A store whose process is killed before or after the ``at``-th write or deletion."""

    store: ObjectStore
    at: int
    after: bool
    count: int = 0

    def __getattr__(self, name: str) -> object:
        found = getattr(self.store, name)
        return self._dying(found) if name in ("put", "delete") else found

    def _dying(self, act: Callable[..., object]) -> Callable[..., object]:
        def acting(*arguments: object) -> object:
            self.count += 1
            if self.count == self.at and not self.after:
                raise Killed
            result = act(*arguments)
            if self.count == self.at:
                raise Killed
            return result

        return acting


def paths(store: ObjectStore) -> set[str]:
    return {info.key for info in store.list() if not info.key.startswith("_lithify/")}


def merged(world: World) -> list[int]:
    """Adopt a day, merge and commit it; return the ids that readers see all the time."""
    world.add(*put_hours(world.store, 0))
    world.publish()
    ids = seen_ids(world.store)
    world.turn()
    world.node.finish(*world.node.take())
    return ids


def clean(world: World, *, later_ms: int = 0) -> CleanReport:
    world.service.clock.now_ms += later_ms
    return clean_table(world.table, world.store)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2])
def test_a_publisher_killed_at_any_write_leaves_a_whole_table(world: World, at: int, after: bool) -> None:
    ids = merged(world)
    dying = DyingStore(world.store, at, after)
    with pytest.raises(Killed):
        publish_manifest(world.table, dying)  # type: ignore[arg-type]
    assert seen_ids(world.store) == ids
    DataSource.objects.update(publisher_until_ms=None)  # its turn is over some time
    publish_manifest(world.table, world.store)
    assert seen_ids(world.store) == ids
    table = DataSource.objects.get()
    assert table.published == table.sequence
    assert read_pointer(world.store) == read_pointer(open_store(table.url))
    assert Manifest.objects.filter(superseded_at_ms=None).count() == 1


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 13, 24, 25])
def test_a_cleaner_killed_at_any_deletion_resumes(world: World, at: int, after: bool) -> None:
    ids = merged(world)
    world.publish()
    world.service.clock.now_ms += 3 * DELAY_MS
    with pytest.raises(Killed):
        clean_table(world.table, DyingStore(world.store, at, after))  # type: ignore[arg-type]
    assert seen_ids(world.store) == ids
    clean_table(world.table, world.store)
    assert len(paths(world.store)) == 1
    assert seen_ids(world.store) == ids
    assert not Segment.objects.filter(state=SegmentState.REPLACED).exists()


def test_a_reader_with_an_older_manifest_finishes_with_exact_rows(world: World) -> None:
    ids = merged(world)
    old = read_manifest(world.store)
    assert old is not None
    world.publish()
    assert clean(world, later_ms=DELAY_MS - 1).files == 0
    assert read_ids(world.store, [file.path for file in old.files]) == ids
    assert clean(world, later_ms=1).files == 24
    assert seen_ids(world.store) == ids
    assert clean(world, later_ms=DELAY_MS).manifests == 1
    assert manifest_key(1) not in {info.key for info in world.store.list()}


def test_nothing_goes_while_readers_are_still_shown_it(world: World) -> None:
    ids = merged(world)
    assert clean(world, later_ms=10 * DELAY_MS).files == 0, "the pointer has not moved"
    world.publish()
    table = DataSource.objects.get()
    world.store.put(
        POINTER,
        encode_pointer(Pointer(sequence=1, manifest=manifest_key(1), sha256=Manifest.objects.get(sequence=1).sha256)),
    )
    assert clean(world, later_ms=10 * DELAY_MS).files == 0, "somebody has put the old pointer back"
    assert seen_ids(world.store) == ids
    world.publish()
    assert DataSource.objects.get().published > table.published
    assert clean(world).files == 24
    assert seen_ids(world.store) == ids


def test_a_pointer_that_is_ahead_of_the_database_is_left_alone(world: World) -> None:
    merged(world)
    ahead = encode_pointer(Pointer(sequence=99, manifest=manifest_key(99), sha256="0" * 64))
    world.store.put(POINTER, ahead)
    with pytest.raises(PointerAhead):
        world.publish()
    assert world.store.get(POINTER) == ahead
    assert "pointer_ahead" not in DataSource.objects.get().publish_error
    assert "older than" in DataSource.objects.get().publish_error


@pytest.mark.parametrize("further", [0, 5])
def test_a_rescan_continues_behind_a_pointer_that_the_database_does_not_know(world: World, further: int) -> None:
    """The database is from before the pointer's change; at ``further`` 0 it has made one of the same sequence since."""
    ids = merged(world)
    own = read_manifest(world.store)
    assert own is not None
    sequence = DataSource.objects.get().sequence + further
    lost = TableManifest(sequence=sequence, time_column="ts", columns=(), files=own.files)
    pointer = write_manifest(world.store, encode_manifest(lost, lost.files))
    before = world.store.get(pointer.manifest)
    with pytest.raises(PointerAhead):
        world.publish()
    assert clean(world, later_ms=10 * DELAY_MS).files == 0
    assert world.store.get(pointer.manifest) == before
    assert read_pointer(world.store) == pointer
    assert "tables rescan" in DataSource.objects.get().publish_error
    assert rescan_table(world.table, world.store, context=CONTEXT).sequence > sequence
    assert world.store.get(pointer.manifest) == before
    assert seen_ids(world.store) == ids
    table = DataSource.objects.get()
    assert (table.published, table.publish_error) == (table.sequence, "")
    assert clean(world, later_ms=10 * DELAY_MS).files == 1, "the merge that was not published is forgotten"
    assert seen_ids(world.store) == ids
    check_timelines()


def test_nothing_goes_while_the_pointer_has_the_sequence_of_another_history(world: World) -> None:
    merged(world)
    world.publish()
    table = DataSource.objects.get()
    other = Pointer(sequence=table.published, manifest=manifest_key(table.published), sha256="0" * 64)
    world.store.put(POINTER, encode_pointer(other))
    assert clean(world, later_ms=10 * DELAY_MS).files == 0
    assert "tables rescan" in DataSource.objects.get().publish_error


def test_a_manifest_that_no_pointer_leads_to_is_passed_over(world: World) -> None:
    ids = merged(world)
    sequence = DataSource.objects.get().sequence
    world.store.put(manifest_key(sequence), b"of a history that the database lost")
    world.publish()
    assert DataSource.objects.get().published == sequence + 1
    assert world.store.get(manifest_key(sequence)) == b"of a history that the database lost"
    assert seen_ids(world.store) == ids


def test_two_publishers_do_not_write_at_once(world: World) -> None:
    merged(world)
    DataSource.objects.update(publisher_until_ms=world.service.clock.now_ms + 1)
    assert not publish_manifest(DataSource.objects.get(), world.store).is_written
    world.service.clock.now_ms += 2
    assert publish_manifest(DataSource.objects.get(), world.store).is_written


def test_outputs_of_a_chunk_that_was_given_up_are_deleted(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.turn()
    [spec] = world.node.take()
    result = world.node.merge(spec)
    put_rows(world.store, "new.parquet", [day(0)], first_id=7)
    world.add("new.parquet", mode=RegistrationMode.REPLACE, interval=(day(0), day(1)))
    world.node.worker.poll(world.node.success(spec, result), capacity=0)
    assert TaskChunk.objects.get().outcome == ChunkOutcome.ABORTED
    [output] = result.outputs
    assert output.path in paths(world.store)
    assert clean(world, later_ms=60_000).outputs == 1
    assert output.path not in paths(world.store)


def test_what_a_run_without_a_result_left_is_swept_and_nothing_else(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.turn()
    [spec] = world.node.take()
    left = world.node.merge(spec).outputs[0].path
    world.node.fail(spec, FailureReason(error_class="OSError", message="killed"))
    world.service.clock.now_ms += 700_000
    [spec] = world.node.take()
    world.node.finish(spec)
    world.publish()
    assert left in paths(world.store)
    assert clean(world, later_ms=SWEEP_DELAY_MS).outputs == 1
    assert left not in paths(world.store)
    assert len(seen_ids(world.store)) == 72
    assert not DiscardedOutput.objects.filter(deleted_at_ms=None).exists()


def failure_of(error: BadObject) -> FailureReason:
    """Return what a node reports of an error."""
    return FailureReason(
        error_class=type(error).__name__, message=str(error), object=error.object_name, section=error.section
    )


def failing_run(world: World, spec: object, reason: FailureReason) -> None:
    world.node.fail(spec, reason)  # type: ignore[arg-type]
    world.service.clock.now_ms += 700_000


def test_a_damaged_file_is_kept_out_and_the_table_stays_readable(world: World) -> None:
    names = put_hours(world.store, 0)
    world.add(*names)
    world.turn()
    data = bytearray(world.store.get(names[3]))
    data[4:60] = bytes(56)
    world.store.put(names[3], bytes(data))
    [spec] = world.node.take()
    reason = FailureReason(error_class="BadObject", message="it cannot be read", object=names[3], section="row group 0")
    failing_run(world, spec, reason)
    report = settle_failures(lambda url: world.store)
    assert list(report.quarantined) == [names[3]]
    [held] = BadFile.objects.all()
    assert (held.path, held.place) == (names[3], "row group 0")
    world.publish()
    assert len(seen_ids(world.store)) == 69
    assert world.work_off() == 1
    world.publish()
    assert len(seen_ids(world.store)) == 69
    assert names[3] in paths(world.store), "it stays where it is"
    check_timelines()


def test_a_footer_that_lies_of_its_times_is_kept_out_with_file_and_reason(world: World) -> None:
    world.add(*put_hours(world.store, 0, hours=[1, 5]))
    put_lies(world.store, "lies.parquet", [day(3), day(3) + 5], [day(0), day(0) + 5])
    world.add("lies.parquet")
    world.turn()
    [spec] = world.node.take()
    with pytest.raises(BadObject) as caught:
        merge_job.run(spec, world.store, scratch=Path(world.store.url.removeprefix("file://")).parent / "scratch")
    failing_run(world, spec, failure_of(caught.value))
    assert list(settle_failures(lambda url: world.store).quarantined) == ["lies.parquet"]
    held = BadFile.objects.get()
    assert (held.path, held.place) == ("lies.parquet", "row group 0, column ts")
    assert f"it has times from {day(3)} to {day(3) + 5} ms, and its statistics said from {day(0)}" in held.message
    world.publish()
    assert len(seen_ids(world.store)) == 6
    assert world.work_off() == 1
    world.publish()
    assert len(seen_ids(world.store)) == 6
    check_timelines()


def test_a_footer_that_lies_over_several_chunks_is_found_when_it_is_read_alone(world: World) -> None:
    put_lies(world.store, "lies.parquet", [day(3), day(6)], [day(0), day(1)])
    world.add("lies.parquet")
    error = read_alone(Segment.objects.get(), world.store)
    assert error is not None
    assert "its statistics said" in error.reason


def test_a_lying_report_blames_no_file(world: World) -> None:
    names = put_hours(world.store, 0)
    world.add(*names)
    world.turn()
    [spec] = world.node.take()
    failing_run(world, spec, FailureReason(error_class="BadObject", message="not true", object=names[3]))
    assert settle_failures(lambda url: world.store).quarantined == {}
    assert settle_failures(lambda url: world.store).unread == {}
    assert not BadFile.objects.exists()


def test_chunks_whose_tasks_fail_again_and_again_are_left_alone_until_something_changes(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    for _ in range(FAILED_TASKS_MAX):
        assert len(world.turn().created) == 1
        while specs := world.node.take():
            [spec] = specs
            failing_run(world, spec, FailureReason(error_class="MergeBroken", message="it always fails"))
        report = settle_failures(lambda url: world.store)
        assert len(report.failed) == 1
        check_timelines()
    chunk = world.chunk(0)
    assert (chunk.state, chunk.is_quarantined, chunk.failures) == (ChunkStatus.DEFERRED, True, FAILED_TASKS_MAX)
    assert "it always fails" in chunk.quarantine_reason
    assert world.turn().created == []
    assert world.turn().analysed == 0
    put_rows(world.store, "day-000/late.parquet", [day(0) + 5])
    world.add("day-000/late.parquet")
    assert len(world.turn().created) == 1, "a late file makes it worth another try"


def test_the_rounds_of_control_tasks_do_it_all(world: World) -> None:
    world.add(*put_hours(world.store, 0))

    def stores(url: str) -> ObjectStore:
        return world.store

    assert publish_tables(stores).published == {"acme/events": 1}
    assert plan_tables().started == 1
    world.node.finish(*world.node.take())
    assert publish_tables(stores).published == {"acme/events": 2}
    plan_tables()
    assert plan_tables().tables == 0, "nothing has changed: nobody is looked at"
    world.service.clock.now_ms += DELAY_MS
    assert clean_tables(stores).files == 24
    assert not Task.objects.filter(state=TaskState.OPEN).exists()


def test_a_store_in_trouble_stops_no_other_table(world: World) -> None:
    world.add(*put_hours(world.store, 0))

    def stores(url: str) -> ObjectStore:
        raise StorageError("open", url, "it does not answer")

    assert "does not answer" in publish_tables(stores).failed["acme/events"]
    assert clean_tables(stores).failed == 1


def test_nothing_goes_while_the_log_is_behind_the_bucket(world: World) -> None:
    world.add(*put_hours(world.store, 0))
    world.turn()
    [spec] = world.node.take()
    left = world.node.merge(spec).outputs[0].path
    world.node.fail(spec, FailureReason(error_class="OSError", message="killed"))
    world.service.clock.now_ms += 700_000
    [spec] = world.node.take()
    world.node.finish(spec)
    world.publish()
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    own_store = cached_store(settings.OBJECT_STORE_URL)
    own_store.put(lost.key, lost.encode())
    with pytest.raises(LogBehind, match="position 1000000"):
        clean(world, later_ms=SWEEP_DELAY_MS)
    assert left in paths(world.store)
    own_store.delete(lost.key)
    assert clean(world, later_ms=0).outputs == 1


def test_a_log_that_falls_behind_stops_a_cleaning_at_its_next_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_deletions, "DELETIONS_PER_QUESTION", 5)
    merged(world)
    world.publish()
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    delete, before = world.store.delete, len(paths(world.store))

    def last_delete(key: str) -> None:
        delete(key)
        cached_store(settings.OBJECT_STORE_URL).put(lost.key, lost.encode())

    monkeypatch.setattr(world.store, "delete", last_delete)
    with pytest.raises(LogBehind, match="position 1000000"):
        clean(world, later_ms=10 * DELAY_MS)
    assert before - 5 <= len(paths(world.store)) < before
