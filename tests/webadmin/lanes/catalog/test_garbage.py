"""Unreachable objects are deleted after a grace period; reachable ones are kept, whatever runs meanwhile."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from engine.core.errors import BadObject
from engine.formats.ranges.object_entry import ObjectEntry
from engine.lanes.catalog.plan.branch import BranchUpdate, base_version_of
from engine.storage import ObjectNotFound
from tests.processes import wait_until
from tests.webadmin.lanes.catalog.compactor import Compactor
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog, new_catalog
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.catalog.api.errors import RequestRefused
from webadmin.lanes.catalog.api.issued_names import check_issued, new_name
from webadmin.lanes.catalog.compaction_policies import NUMBERS
from webadmin.lanes.catalog.errors import CatalogRefused, FilesCondemned, RepositoryExists, RepositoryMissing
from webadmin.lanes.catalog.lane_models import Collection
from webadmin.lanes.catalog.models import (
    BranchToken,
    Build,
    CondemnedFile,
    CondemnedObject,
    Repository,
    StagedEntry,
    StagedInterval,
)
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, files_of, folder_of
from webadmin.lanes.catalog.services import commit_branch as committing
from webadmin.lanes.catalog.services import reset_branch as reset_services
from webadmin.lanes.catalog.services.branches import delete_branch, find_branch
from webadmin.lanes.catalog.services.commit_branch import build_state
from webadmin.lanes.catalog.services.compaction import builds
from webadmin.lanes.catalog.services.compaction.builds import open_build
from webadmin.lanes.catalog.services.compaction.compact_branch import begin_compaction
from webadmin.lanes.catalog.services.garbage import collect_garbage as collect_garbage_module
from webadmin.lanes.catalog.services.garbage import sweep_rows
from webadmin.lanes.catalog.services.garbage.collect_garbage import Collected, collect_all, collect_garbage
from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_builds, sweep_retired_rows
from webadmin.lanes.catalog.services.publish import publish_compaction
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.repositories import (
    begin_removal,
    delete_repository,
    find_repository,
    restore_repository,
)
from webadmin.lanes.catalog.services.reset_branch import reset_branch
from webadmin.lanes.catalog.services.write_objects import delete_prefix, put_entry
from webadmin.lanes.catalog.states import CompactionState, Why
from webadmin.schedule.errors import LogBehind
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import Command

DAYS = 86_400
GRACE = 3600


def names(catalog: Catalog, folder: str = "meta/") -> set[str]:
    """All that lies in a folder of the repository."""
    return {info.key for info in catalog_store().list(folder_of(catalog.repository) + folder)}


def age(catalog: Catalog, now_ms: int, seconds: float) -> None:
    """Let everything in the store be so old by the database's clock."""
    for key in names(catalog, ""):
        path = Path(catalog_store().url.removeprefix("file://")) / key
        os.utime(path, (now_ms / 1000 - seconds,) * 2)


def collect(compactor: Compactor, *, seconds: float = 3 * DAYS, has_objects: bool = True) -> Collected:
    """Collect when everything is old."""
    age(compactor.catalog, compactor.service.clock.now_ms, seconds)
    return collect_garbage(compactor.catalog.repository, has_objects=has_objects)


def rounds(compactor: Compactor) -> Collected:
    """Condemn, wait, delete."""
    collect(compactor)
    compactor.service.clock.advance(GRACE + 1)
    return collect(compactor)


def upload(catalog: Catalog, name: str) -> ObjectEntry:
    """Put an object's bytes."""
    catalog_store().put(data_prefix_of(catalog.repository) + name, name.encode())
    return ObjectEntry(address=f"data/{name}", size=len(name), checksum=name, written_at=0.0)


def stage(catalog: Catalog, key: str, name: str) -> None:
    put_entry(catalog.repository, "main", key.encode(), upload(catalog, name))


def test_files_of_lost_builds_and_old_snapshots_go_and_nothing_else(compactor: Compactor) -> None:
    """Invariants 15 and 16: what is reached is there, what is not goes."""
    catalog = compactor.catalog
    stage(catalog, "a", "1")
    catalog.commit()
    stage(catalog, "a", "2")
    catalog.compact()
    first = catalog.record().snapshot
    stage(catalog, "b", "3")
    catalog.compact()
    stage(catalog, "c", "4")
    expected = catalog.visible()
    before = names(catalog)
    assert collect(compactor, seconds=GRACE - 60).files_condemned == 0, "it is too young"
    done = collect(compactor)
    assert (done.files_deleted, names(catalog)) == (0, before)
    assert done.files_condemned == CondemnedFile.objects.count() > 0
    compactor.service.clock.advance(GRACE + 1)
    done = collect(compactor)
    assert done.files_deleted == done.files_condemned + CondemnedFile.objects.count() > 0
    assert files_of(catalog.repository).key(b"M", str(first)) not in names(catalog)
    assert catalog.visible() == expected
    again = rounds(compactor)
    assert (again.files_condemned, again.files_deleted) == (0, 0)
    assert not CondemnedFile.objects.exists()
    catalog.commit()
    assert catalog.committed() == expected
    for commit in (catalog.head(), catalog.head("main~1")):
        files_of(catalog.repository).read_metarange(commit.metarange)


def test_a_file_that_is_reached_again_is_spared(compactor: Compactor) -> None:
    """Row 10 of the interleavings: what one lost, another publishes."""
    catalog = compactor.catalog
    catalog.puts(a="1")
    record = catalog.record()
    catalog.compact()
    snapshot = catalog.record().snapshot
    assert snapshot != record.snapshot
    reset_branch(catalog.repository, "main", context=CONTEXT)
    assert collect(compactor).files_condemned > 0
    catalog.puts(a="1")
    catalog.compact()
    assert catalog.record().snapshot == snapshot
    compactor.service.clock.advance(GRACE + 1)
    assert collect(compactor).files_deleted == 0
    assert catalog.visible() == {"a": "1"}


def test_an_open_build_keeps_what_was_deleted_in_mind(compactor: Compactor) -> None:
    """Row 32: a build that began before a deletion was over is refused, so the list remembers it."""
    catalog = compactor.catalog
    catalog.puts(a="1")
    catalog.compact()
    reset_branch(catalog.repository, "main", context=CONTEXT)
    with open_build(catalog.repository, Why.COMMIT):
        compactor.service.clock.advance(1)
        assert rounds(compactor).files_deleted > 0
        collect(compactor)
        assert CondemnedFile.objects.filter(deleted_ms__isnull=False).exists()
    collect(compactor)
    assert not CondemnedFile.objects.exists()


def test_a_long_build_is_heard_of_and_keeps_what_it_puts(
    real_catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "BEAT_SECONDS", 0.001)
    with open_build(real_catalog.repository, Why.COMMIT) as build:
        rows = Build.objects.filter(pk=build.pk)
        rows.update(heartbeat_ms=0)
        wait_until(lambda: rows.get().heartbeat_ms > 0, "the build is renewed", 60)
        assert sweep_builds() == 0
    assert not rows.exists()


def test_what_an_open_build_has_put_is_not_condemned(compactor: Compactor) -> None:
    """Row 32: also where it takes longer than the grace."""
    catalog, clock = compactor.catalog, compactor.service.clock
    catalog.puts(a="1")
    record = seal_branch(find_branch(catalog.repository, "main").pk, why=Why.COMMIT)
    assert record
    with open_build(catalog.repository, Why.COMMIT, base_version=base_version_of(record)) as build:
        made = build_state(catalog.repository, base_version_of(record))
        clock.advance(10 * GRACE)
        age(catalog, clock.now_ms, 9 * GRACE)
        for _ in range(2):
            collect_garbage(catalog.repository)
            clock.advance(GRACE + 1)
        assert isinstance(publish_compaction(base_version_of(record), build, made, equals_head=False), BranchUpdate)
    assert catalog.visible() == {"a": "1"}


def test_a_build_that_was_taken_for_dead_is_not_published(compactor: Compactor) -> None:
    """What was deleted since it began is not kept in mind for it: it is built again."""
    catalog = compactor.catalog
    catalog.puts(a="1")
    record = seal_branch(find_branch(catalog.repository, "main").pk, why=Why.COMMIT)
    assert record
    with open_build(catalog.repository, Why.COMMIT, base_version=base_version_of(record)) as build:
        made = build_state(catalog.repository, base_version_of(record))
        compactor.service.clock.advance(sweep_rows.BUILD_SILENT_MS / 1000 + 1)
        assert sweep_builds() == 1
        with pytest.raises(FilesCondemned):
            publish_compaction(base_version_of(record), build, made, equals_head=False)
    assert catalog.visible() == {"a": "1"}
    assert catalog.commit().metarange == made.id


def test_a_commit_that_misses_what_is_being_deleted_is_made_again(compactor: Compactor) -> None:
    """It had put the file before, and needs it again."""
    catalog = compactor.catalog
    catalog.puts(a="1")
    missed = ObjectNotFound("get", "ranges/x", "no object has this key")
    with patch.object(committing, "are_equal", side_effect=missed), pytest.raises(ObjectNotFound):
        catalog.commit()
    CondemnedFile.objects.create(repository_id=catalog.repository.pk, file_id="x", since_ms=0, is_marked=True)
    with patch.object(committing, "are_equal", side_effect=[missed, False]):
        catalog.commit()
    assert catalog.committed() == {"a": "1"}


def test_no_object_goes_while_its_link_may_still_come(compactor: Compactor) -> None:
    """With the least grace that can be set: the last link comes a day after the address was given out."""
    catalog, clock = compactor.catalog, compactor.service.clock
    least, _ = NUMBERS["object_grace_seconds"]
    compactor.set(object_grace_seconds=least)
    begun_ms = clock.now_ms
    name = new_name(begun_ms)
    upload(catalog, name)
    age(catalog, begun_ms, 0)
    for _ in range(24):
        assert check_issued(f"data/{name}", clock.now_ms)
        assert collect_garbage(catalog.repository).objects_condemned == 0
        clock.advance(3600)
    clock.advance(1)
    with pytest.raises(RequestRefused):
        check_issued(f"data/{name}", clock.now_ms)
    assert collect_garbage(catalog.repository).objects_condemned == 0, "whoever was let through writes its row now"
    clock.advance(3600)
    assert collect_garbage(catalog.repository).objects_condemned == 1
    clock.advance(3600 + 1)
    assert collect_garbage(catalog.repository).objects_deleted == 1


def test_objects_go_when_no_commit_no_snapshot_and_no_staged_row_names_them(compactor: Compactor) -> None:
    catalog = compactor.catalog
    stage(catalog, "a", "committed")
    catalog.commit()
    stage(catalog, "a", "folded")
    catalog.compact()
    stage(catalog, "b", "sealed-over")
    seal_branch(find_branch(catalog.repository, "main").pk, why=Why.COMMIT)
    stage(catalog, "b", "staged")
    upload(catalog, "never-linked")
    assert collect(compactor, seconds=DAYS).objects_condemned == 0, "it may still be linked"
    age(catalog, compactor.service.clock.now_ms, 3 * DAYS)
    preview = collect_garbage(catalog.repository, context=ActionContext(actor="tester", is_dry_run=True))
    assert (preview.objects_seen, preview.objects_condemned, preview.objects_deleted) == (5, 1, 0)
    assert (Collection.objects.count(), CondemnedObject.objects.count()) == (1, 0), "a look leaves nothing"
    done = collect(compactor)
    assert (done.objects_condemned, done.objects_deleted) == (1, 0), "it is looked at again an hour later"
    compactor.service.clock.advance(GRACE)
    assert collect(compactor).objects_deleted == 0
    compactor.service.clock.advance(1)
    preview = collect_garbage(catalog.repository, context=ActionContext(actor="tester", is_dry_run=True))
    assert [name.rpartition("/")[2] for name in preview.names] == ["never-linked"]
    assert collect(compactor).objects_deleted == preview.objects_deleted == 1
    assert not CondemnedObject.objects.exists()
    kept = {name.rpartition("/")[2] for name in names(catalog, "data/")}
    assert kept == {"committed", "folded", "sealed-over", "staged"}
    reset_branch(catalog.repository, "main", context=CONTEXT)
    rounds(compactor)
    rounds(compactor)
    assert {name.rpartition("/")[2] for name in names(catalog, "data/")} == {"committed"}


def test_rows_of_retired_tokens_go_after_their_grace(compactor: Compactor) -> None:
    """They are swept later, whatever became of who retired them."""
    catalog = compactor.catalog
    catalog.puts(a="1", b="1")
    catalog.commit()
    assert StagedEntry.objects.count() == 2
    assert collect(compactor).rows_deleted == 0
    compactor.service.clock.advance(GRACE + 1)
    assert collect(compactor).rows_deleted == 2
    assert not StagedEntry.objects.exists()
    assert BranchToken.objects.count() == 1, "tokens do not pile up"
    catalog.branch("other")
    catalog.puts("other", c="1")
    delete_branch(catalog.repository, "other", context=CONTEXT)
    compactor.service.clock.advance(GRACE + 1)
    assert collect(compactor).rows_deleted == 1


def test_what_was_folded_is_swept_at_once_and_what_comes_late_after_its_grace(compactor: Compactor) -> None:
    """Listings walk over the rows of all tokens, retired or not."""
    catalog = compactor.catalog
    catalog.puts(a="1", b="1")
    delete_prefix(catalog.repository, "main", b"b", context=CONTEXT)
    record = seal_branch(find_branch(catalog.repository, "main").pk, why=Why.COMMIT)
    assert record
    with open_build(catalog.repository, Why.COMMIT, base_version=base_version_of(record)):
        catalog.compact()
        assert sweep_retired_rows() == 0, "somebody reads them"
    late = StagedEntry.objects.first()
    assert (sweep_retired_rows(), StagedInterval.objects.count(), catalog.visible()) == (2, 0, {"a": "1"})
    assert late
    late.save(force_insert=True)
    assert (sweep_retired_rows(), StagedEntry.objects.count()) == (1, 0)
    compactor.service.clock.advance(GRACE + 1)
    late.save(force_insert=True)
    assert collect(compactor).rows_deleted == 1
    assert BranchToken.objects.count() == 1


def test_rows_that_are_to_be_laid_over_others_are_not_swept(compactor: Compactor) -> None:
    """They belong to no record yet, and are written for as long as it takes."""
    catalog = compactor.catalog
    catalog.puts(a="1", b="1")

    def swept(*told: Any) -> bool:
        compactor.service.clock.advance(GRACE + 1)
        assert collect(compactor).rows_deleted == sweep_retired_rows() == 0
        return lay_over(*told)

    lay_over = reset_services._add_overlay
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reset_services, "_add_overlay", swept)
        reset_services.reset_prefix(catalog.repository, "main", b"a", context=CONTEXT)
    assert catalog.visible() == {"b": "1"}


def test_runs_are_deleted_a_grace_period_after_their_compaction(compactor: Compactor) -> None:
    """A database that goes back in time by less opens the compaction again, and its job reads the run."""
    catalog = compactor.catalog
    catalog.puts(a="1")
    begin_compaction(find_branch(catalog.repository, "main"), cause="by hand", context=CONTEXT)
    [run] = names(catalog, "meta/runs/")
    collect(compactor)
    assert names(catalog, "meta/runs/") == {run}
    compactor.finish()
    collect(compactor)
    assert names(catalog, "meta/runs/") == {run}
    compactor.service.clock.advance(GRACE + 1)
    collect(compactor)
    assert names(catalog, "meta/runs/") == set()
    assert compactor.last().run_key == ""


def test_what_can_not_be_read_ends_the_collection(compactor: Compactor) -> None:
    """A truncated list of what is reached would delete what is."""
    catalog = compactor.catalog
    stage(catalog, "a", "1")
    catalog.commit()
    upload(catalog, "waste")
    files = files_of(catalog.repository)
    [info] = files.read_metarange(catalog.head().metarange).ranges
    key = files.key(b"R", info.id)
    data = catalog_store().get(key)
    catalog_store().put(key, data[:-1] + b"x")
    with pytest.raises(BadObject):
        collect(compactor)
    assert len(names(catalog, "data/")) == 2
    assert info.id in Collection.objects.get().error
    catalog_store().delete(files.key(b"M", catalog.head().metarange))
    with pytest.raises(ObjectNotFound):
        collect(compactor)
    assert collect_all().failed.keys() == {"acme/repo"}


def test_nothing_goes_while_the_log_is_behind_the_bucket(compactor: Compactor) -> None:
    """The condemnation is a row and stays; a collection of a database that is not behind writes an entry first."""
    catalog = compactor.catalog
    upload(catalog, "waste")
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    catalog_store().put(lost.key, lost.encode())
    for _ in range(2):
        with pytest.raises(LogBehind, match="position 1000000"):
            rounds(compactor)
    assert len(names(catalog, "data/")) == 1
    catalog_store().delete(lost.key)
    last = Command.objects.order_by("-index")[0].index
    rounds(compactor)
    assert names(catalog, "data/") == set()
    assert Command.objects.order_by("-index")[0].index > last


WEEK = 7 * DAYS


def test_no_repository_goes_while_the_log_is_behind_the_bucket(compactor: Compactor) -> None:
    """The database may have forgotten that it was restored."""
    catalog, clock = compactor.catalog, compactor.service.clock
    stage(catalog, "a", "1")
    catalog.commit()
    delete_repository(catalog.repository, context=CONTEXT)
    clock.advance(WEEK)
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    catalog_store().put(lost.key, lost.encode())
    before = names(catalog, "")
    assert "position 1000000" in collect_all().failed["acme/repo"]
    assert names(catalog, "") == before
    restore_repository(catalog.repository, context=CONTEXT)


def test_a_repository_that_is_restored_while_others_are_collected_keeps_its_compactions(
    compactor: Compactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, own = compactor.catalog, new_catalog(name="another")
    delete_repository(own.repository, context=CONTEXT)
    original = collect_garbage_module.collect_garbage

    def collect_long(repository: Repository, **options: Any) -> Any:
        if repository.pk == other.repository.pk:
            restore_repository(own.repository, context=CONTEXT)
        return original(repository, **options)

    ended = []
    monkeypatch.setattr(collect_garbage_module, "collect_garbage", collect_long)
    monkeypatch.setattr(collect_garbage_module, "end_all", lambda repository, **_: ended.append(str(repository)))
    assert collect_all().failed == {}
    assert ended == []


def test_a_deleted_repository_goes_after_its_grace_with_all_that_it_had(compactor: Compactor) -> None:
    """Row 33 of the interleavings, with a compaction under way."""
    catalog, clock = compactor.catalog, compactor.service.clock
    stage(catalog, "a", "1")
    catalog.commit()
    stage(catalog, "a", "2")
    begin_compaction(find_branch(catalog.repository, "main"), cause="by hand", context=CONTEXT)
    delete_repository(catalog.repository, context=CONTEXT)
    before = names(catalog, "")
    clock.advance(WEEK - 1)
    age(catalog, clock.now_ms, WEEK)
    assert collect_all().deleted == 0
    assert (names(catalog, ""), compactor.last().state) == (before, CompactionState.ENDED)
    clock.advance(1)
    assert collect_all().deleted > 0
    assert names(catalog, "") == set()
    assert not Repository.objects.exists()
    assert not StagedEntry.objects.exists()
    assert not Build.objects.exists()
    assert not BranchToken.objects.exists()


def test_a_deleted_repository_is_restored_as_it_was(compactor: Compactor) -> None:
    catalog, clock = compactor.catalog, compactor.service.clock
    stage(catalog, "a", "1")
    catalog.commit()
    stage(catalog, "b", "2")
    upload(catalog, "waste")
    expected, before = catalog.visible(), names(catalog, "")
    delete_repository(catalog.repository, context=CONTEXT)
    catalog.repository.refresh_from_db()
    clock.advance(WEEK - 1)
    age(catalog, clock.now_ms, WEEK)
    collect_all()
    with pytest.raises(CatalogRefused, match="is deleted"):
        collect_garbage(catalog.repository)
    restore_repository(catalog.repository, context=ActionContext(actor="tester", is_dry_run=True))
    with pytest.raises(RepositoryMissing):
        find_repository("acme", "repo")
    restore_repository(catalog.repository, context=CONTEXT)
    assert find_repository("acme", "repo").deleted_ms is None
    assert (catalog.visible(), names(catalog, "")) == (expected, before)
    assert AuditEntry.objects.filter(action="catalog_restore_repository", actor=CONTEXT.actor).count() == 1
    clock.advance(WEEK)
    assert collect_all().failed == {}
    assert catalog.visible() == expected
    with pytest.raises(RepositoryMissing, match="is not deleted"):
        restore_repository(catalog.repository, context=CONTEXT)


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_a_name_that_is_taken_by_now_is_not_restored(compactor: Compactor, is_dry_run: bool) -> None:
    delete_repository(compactor.catalog.repository, context=CONTEXT)
    again = new_catalog()
    with pytest.raises(RepositoryExists, match="delete that one first"):
        restore_repository(compactor.catalog.repository, context=ActionContext(actor="tester", is_dry_run=is_dry_run))
    delete_repository(again.repository, context=CONTEXT)
    restore_repository(compactor.catalog.repository, context=CONTEXT)


def test_what_is_being_deleted_is_not_restored(compactor: Compactor) -> None:
    """The end of the grace decides, not what is deleted first."""
    delete_repository(compactor.catalog.repository, context=CONTEXT)
    assert not begin_removal(compactor.catalog.repository)
    compactor.service.clock.advance(WEEK)
    assert begin_removal(compactor.catalog.repository)
    for context in (CONTEXT, ActionContext(actor="tester", is_dry_run=True)):
        with pytest.raises(RepositoryMissing, match="being deleted already"):
            restore_repository(compactor.catalog.repository, context=context)
    assert collect_all().deleted > 0
    assert not Repository.objects.exists()
