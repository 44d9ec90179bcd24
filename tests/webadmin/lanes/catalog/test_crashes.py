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
from engine.lanes.catalog.plan.branch import basis_of, seal
from engine.storage import ObjectNotFound, StorageError
from tests.memory_store import MemoryStore
from tests.webadmin.lanes.catalog.short import ORDER, Catalog
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.catalog import places
from webadmin.lanes.catalog.errors import BranchBusy, DirtyBranch, NothingToCommit, PreconditionFailed, TooManyKeys
from webadmin.lanes.catalog.models import BranchToken, Commit, CondemnedFile, StagedEntry
from webadmin.lanes.catalog.services import commit_branch as committing
from webadmin.lanes.catalog.services import staged_rows
from webadmin.lanes.catalog.services.diffs import diff_branch
from webadmin.lanes.catalog.services.records import change_record, seal_branch
from webadmin.lanes.catalog.services.sweep_rows import sweep_retired_rows
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


def test_b42_a_commit_that_loses_every_time_keeps_all(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog.put("k", "x")
    monkeypatch.setattr(committing, "_try_once", lambda *args: None)
    with pytest.raises(BranchBusy):
        catalog.commit()
    assert len(catalog.record().sealed) == 1
    assert catalog.diff() == [("added", "k")]


def test_b44_an_empty_commit_is_made_although_others_emptied_the_tokens(
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


def test_b14_and_b83_a_reading_that_fails_is_an_error_not_an_end(
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


def test_b38_and_b88_a_store_that_fails_publishes_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
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
    made = committing.build_state(catalog.repository, basis_of(catalog.record()))
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


def test_b19_and_b20_and_b68_conditions(catalog: Catalog) -> None:
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


def test_b11_and_b12_and_b13_what_is_staged_of_a_key_is_what_differs_from_the_commit(catalog: Catalog) -> None:
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


def test_b25_of_a_key_that_was_staged_only_nothing_is_left_when_it_was_folded(catalog: Catalog) -> None:
    """Every deletion writes a tombstone (decision 0043), which goes with the fold."""
    catalog.put("k", "x")
    catalog.delete("k")
    catalog.compact()
    sweep_retired_rows()
    assert not StagedEntry.objects.filter(key=b"k").exists()
    assert (catalog.record().snapshot, catalog.visible(), catalog.diff()) == (None, {}, [])


def test_b22_and_b23_and_b24_and_b28_deletions(catalog: Catalog) -> None:
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


def test_b66_and_b73_what_raises_in_a_change_of_the_record_changes_nothing(catalog: Catalog) -> None:
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


def test_b69_rows_are_read_some_at_a_time_without_an_early_end_or_a_repetition(
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
    delete_prefix(catalog.repository, "main", b"k", order=ORDER)
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
