"""Commits that die or lose, readings that fail, damaged and missing files, conditions, deletions, the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from django.conf import LazySettings
from django.db import DatabaseError, connection, transaction

from engine.core.errors import BadObject
from engine.lanes.catalog.plan.branch import base_version_of, seal
from engine.storage import ObjectNotFound, StorageError
from tests.memory_store import MemoryStore
from tests.webadmin.lanes.catalog.short import CONTEXT, Catalog
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.catalog import places
from webadmin.lanes.catalog.errors import BranchBusy, DirtyBranch, NothingToCommit, PreconditionFailed, TooManyKeys
from webadmin.lanes.catalog.models import BranchToken, Commit, CondemnedFile, StagedEntry
from webadmin.lanes.catalog.services import commit_branch as committing
from webadmin.lanes.catalog.services import staged_rows
from webadmin.lanes.catalog.services.diffs import diff_branch
from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_retired_rows
from webadmin.lanes.catalog.services.records import change_record, seal_branch
from webadmin.lanes.catalog.services.write_objects import delete_entries, delete_prefix
from webadmin.lanes.catalog.states import TokenState, Why


class Died(Exception):
    """The process is gone."""


def test_many_dead_commits_leave_tokens_that_the_next_one_takes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*args: object, **told: object) -> None:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(committing, "build_state", die)
        for number in range(5):
            catalog.put("k", str(number % 2))
            with pytest.raises(Died):
                catalog.commit()
        for _ in range(5):
            with pytest.raises(Died):
                catalog.commit()
    assert len(catalog.record().sealed) == 5, "one for each that had new rows, none for those that had not"
    catalog.commit()
    assert (catalog.committed(), catalog.record().sealed) == ({"k": "0"}, ())


@pytest.mark.row("B42")
def test_a_commit_that_loses_every_attempt_keeps_all_staged_rows(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.put("k", "x")
    monkeypatch.setattr(committing, "_try_once", lambda *args: None)
    with pytest.raises(BranchBusy):
        catalog.commit()
    assert len(catalog.record().sealed) == 1
    assert catalog.diff() == [("added", "k")]


@pytest.mark.row("B44")
def test_an_allowed_empty_commit_succeeds_although_others_emptied_the_tokens(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.put("k", "x")
    real = committing.build_state
    other: list[Commit | None] = []

    def build(*args: Any) -> Any:
        made = real(*args)
        if not other:
            other.append(None)
            other.append(catalog.commit())
        return made

    monkeypatch.setattr(committing, "build_state", build)
    commit = catalog.commit(allow_empty=True, message="mine")
    assert other[1]
    assert commit.parents == [other[1].commit_id]
    assert commit.metarange == other[1].metarange


@pytest.mark.row("B14", "B83")
def test_a_failed_read_is_an_error_and_not_the_end_of_the_data(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        catalog.put(f"k{number:03}", "x")
    catalog.branch("work")
    seen = catalog.record()

    class Fails:
        def __init__(self) -> None:
            self.reads = 0

        def __call__(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            if 'FROM "catalog_stagedentry"' in sql or "UNION ALL" in sql:
                self.reads += 1
                if self.reads > 1 or "UNION ALL" in sql:
                    raise DatabaseError("the database is gone")
            return execute(sql, params, many, context)

    for action in (catalog.visible, catalog.diff, lambda: catalog.get("k000"), lambda: catalog.merge("work")):
        with connection.execute_wrapper(Fails()), pytest.raises((DatabaseError, DirtyBranch)) as caught:
            action()
        if action not in (catalog.visible, catalog.diff):
            continue
        assert caught.type is DatabaseError
    assert catalog.record() == seen
    assert len(catalog.visible()) == 200


def test_a_damaged_range_names_itself_and_only_its_readers_fail(catalog: Catalog, settings: LazySettings) -> None:
    catalog.put("k", "x")
    commit = catalog.commit()
    metarange = places.metarange_of(catalog.repository, commit.metarange)
    folder = Path(settings.OBJECT_STORE_URL)
    key = places.files_of(catalog.repository).key(b"R", metarange.ranges[0].id)
    data = bytearray((folder / key).read_bytes())
    data[12] ^= 1
    (folder / key).write_bytes(data)
    for action in (lambda: catalog.get("k"), catalog.visible):
        with pytest.raises(BadObject) as caught:
            action()
        assert caught.value.object_name == key
    catalog.put("l", "x")
    assert catalog.get("l") == "x"
    (folder / key).unlink()
    with pytest.raises(ObjectNotFound):
        catalog.get("k")
    assert catalog.get("l") == "x"


@pytest.mark.row("B38", "B88")
def test_nothing_is_published_when_the_store_fails(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.put("k", "x")

    class Full(MemoryStore):
        def put(self, key: str, data: bytes) -> Any:
            raise StorageError("put", key, "full")

    with monkeypatch.context() as patch:
        patch.setattr(places, "catalog_store", Full)
        with pytest.raises(StorageError):
            catalog.commit()
    assert catalog.diff() == [("added", "k")]
    catalog.commit()
    assert catalog.committed() == {"k": "x"}


def test_a_file_that_is_being_deleted_is_built_again(catalog: Catalog) -> None:
    catalog.put("k", "x")
    made = committing.build_state(catalog.repository, base_version_of(catalog.record()))
    with transaction.atomic():
        catalog.commit()
        wanted = catalog.head().metarange
        transaction.set_rollback(True)
    catalog = Catalog(catalog.repository)
    CondemnedFile.objects.create(repository_id=catalog.repository.pk, file_id=wanted, since_ms=0, is_marked=True)
    with pytest.raises(BranchBusy):
        catalog.commit()
    assert catalog.diff() == [("added", "k")]
    CondemnedFile.objects.update(deleted_ms=1)
    catalog.commit()
    assert not CondemnedFile.objects.exists()
    assert made.id != wanted


@pytest.mark.row("B19", "B20", "B68")
def test_conditional_puts_check_the_visible_value(catalog: Catalog) -> None:
    catalog.puts(committed="x", dead="x", snap="x")
    catalog.commit()
    catalog.put("snap", "y")
    catalog.compact()
    catalog.put("staged", "x")
    catalog.delete("dead")
    for key, match in (("committed", "x"), ("snap", "y"), ("staged", "x")):
        for condition in ({"if_absent": True}, {"if_match": "no"}):
            before = catalog.visible()
            with pytest.raises(PreconditionFailed):
                catalog.put(key, "z", **condition)
            assert catalog.visible() == before
        catalog.put(key, "z", if_match=match)
        assert catalog.get(key) == "z"
    for key in ("dead", "new"):
        with pytest.raises(PreconditionFailed):
            catalog.put(key, "z", if_match="x")
        catalog.put(key, "z", if_absent=True)
        assert catalog.get(key) == "z"


@pytest.mark.row("B11", "B12", "B13")
def test_the_staged_value_of_a_key_is_its_difference_from_the_commit(catalog: Catalog) -> None:
    """Our read of staged values only is the difference of one key: of rows and snapshot together."""

    def staged(key: str) -> list[tuple[str, str]]:
        return [(each.kind, key) for each in diff_branch(catalog.repository, "main", prefix=key.encode()).items]

    catalog.puts(same="x", other="x", folded="x", back="x")
    catalog.commit()
    catalog.put("same", "x")
    assert staged("same") == []
    catalog.puts(folded="y", back="y")
    catalog.compact()
    catalog.put("back", "x")
    catalog.compact()
    assert catalog.record().sealed == ()
    assert (staged("folded"), staged("back"), staged("other")) == ([("changed", "folded")], [], [])


@pytest.mark.row("B25")
def test_a_key_deleted_before_any_commit_leaves_nothing_after_compaction(catalog: Catalog) -> None:
    """Every deletion writes a tombstone (decision 0043), which goes with the fold."""
    catalog.put("k", "x")
    catalog.delete("k")
    catalog.compact()
    sweep_retired_rows()
    assert not StagedEntry.objects.filter(key=b"k").exists()
    assert (catalog.record().snapshot, catalog.visible(), catalog.diff()) == (None, {}, [])


@pytest.mark.row("B22", "B23", "B24", "B28")
def test_deletions_write_tombstones_and_batches_are_bounded(catalog: Catalog) -> None:
    catalog.puts(k="x", m="x")
    catalog.commit()
    catalog.put("k", "y")
    uid = int(catalog.record().uid)
    for _ in range(2):
        catalog.delete("k")
        rows = StagedEntry.objects.filter(branch_id=uid, key=b"k", token_id=int(catalog.record().staging))
        assert [bytes(row.identity) for row in rows] == [b""]
    catalog.put("own", "x")
    catalog.delete("own")
    catalog.delete("nothing")
    assert not StagedEntry.objects.filter(key=b"nothing").exists()
    assert catalog.visible() == {"m": "x"}
    with pytest.raises(TooManyKeys):
        delete_entries(catalog.repository, "main", [f"k{number}".encode() for number in range(1001)])
    delete_entries(catalog.repository, "main", [b"m", b"m", b"k"])
    assert catalog.visible() == {}
    catalog.commit()
    with pytest.raises(NothingToCommit):
        catalog.commit()


@pytest.mark.row("B66", "B73")
def test_an_exception_in_a_change_of_the_record_changes_nothing(catalog: Catalog) -> None:
    catalog.put("k", "x")
    before = catalog.record()

    def raises(*records: object) -> None:
        raise Died

    thens: list[Callable[..., None]] = [raises, lambda before, after: setattr(before, "head", "")]
    for then in thens:
        with pytest.raises((Died, FrozenInstanceError)), transaction.atomic():
            change_record(int(before.uid), lambda record, token: seal(record, token), why=Why.COMMIT, then=then)
    assert catalog.record() == before
    assert BranchToken.objects.filter(branch_id=int(before.uid)).count() == 1


@pytest.mark.row("B69")
def test_rows_are_read_in_pages_without_an_early_end_or_a_repetition(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for amount in (1, 2, 3):
        monkeypatch.setattr(staged_rows, "ROWS_AT_FIRST", amount)
        monkeypatch.setattr(staged_rows, "ROWS_AT_ONCE", amount)
        for letter in "xy":
            for key in ("a", "b", "c", "d"):
                catalog.put(key, letter)
            assert catalog.visible() == dict.fromkeys("abcd", letter)
            seal_branch(int(catalog.record().uid), why=Why.COMMIT)
        catalog.delete("d")
        assert catalog.visible() == dict.fromkeys("abc", "y")
        assert [key for _, key in catalog.diff()] == ["a", "b", "c"]


def test_mutations_are_written_down(catalog: Catalog) -> None:
    catalog.put("k", "x")
    delete_prefix(catalog.repository, "main", b"k", context=CONTEXT)
    catalog.put("k", "y")
    catalog.commit()
    catalog.branch("b")
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    wanted = {"create_repository", "create_branch", "commit", "delete_prefix"}
    assert {f"catalog_{each}" for each in wanted} <= actions
    assert AuditEntry.objects.filter(actor="tester").count() == AuditEntry.objects.count()


def test_retired_tokens_are_known(catalog: Catalog) -> None:
    catalog.put("k", "x")
    catalog.commit()
    token = BranchToken.objects.get(state=TokenState.RETIRED)
    assert token.retired_ms is not None
    assert StagedEntry.objects.filter(token_id=token.pk).count() == 1
