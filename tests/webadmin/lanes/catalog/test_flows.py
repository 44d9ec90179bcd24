"""Repository, branch, write, list, diff, commit, merge, read at a reference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from engine.lanes.catalog.diff import Change, diff_states
from engine.lanes.catalog.three_way import MergeConflict, Side
from engine.storage import ObjectInfo
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog
from webadmin.lanes.catalog.errors import DirtyBranch, EntryMissing, NothingToCommit, NothingToMerge
from webadmin.lanes.catalog.models import BranchToken, Build, StagedEntry
from webadmin.lanes.catalog.places import catalog_store, folder_of
from webadmin.lanes.catalog.services import diffs
from webadmin.lanes.catalog.services.move_heads import cherry_pick, hard_reset, import_entries, revert_commit
from webadmin.lanes.catalog.services.reset_branch import reset_branch, reset_key, reset_prefix
from webadmin.lanes.catalog.services.write_objects import delete_prefix
from webadmin.lanes.catalog.states import TokenState


def test_a_branch_from_writes_to_a_merge(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    assert catalog.diff() == [("added", "a"), ("added", "b")]
    first = catalog.commit(metadata={"why": "first"})
    assert (catalog.diff(), catalog.committed()) == ([], {"a": "x", "b": "x"})
    assert (first.generation, first.parents, first.metadata) == (
        2,
        [catalog.head("main~1").commit_id],
        {"why": "first"},
    )

    catalog.branch("work")
    catalog.put("a", "y", "work")
    catalog.delete("b", "work")
    catalog.put("c", "x", "work")
    assert catalog.visible("work") == {"a": "y", "c": "x"}
    assert catalog.diff("work") == [("changed", "a"), ("removed", "b"), ("added", "c")]
    second = catalog.commit("work")
    catalog.put("d", "x")
    third = catalog.commit()
    merged = catalog.merge("work")
    assert merged.parents == [third.commit_id, second.commit_id]
    assert catalog.visible() == {"a": "y", "c": "x", "d": "x"}
    assert catalog.get("a", "main~1") == "x"
    assert catalog.get("b", first.commit_id[:8]) == "x"
    assert catalog.get("a", "main^2") == "y"
    with pytest.raises(EntryMissing):
        catalog.get("b")
    assert not Build.objects.exists()


@pytest.mark.row("B35", "B39")
def test_an_empty_commit_is_refused_unless_allowed(catalog: Catalog) -> None:
    with pytest.raises(NothingToCommit):
        catalog.commit()
    catalog.puts(a="x")
    catalog.delete("a")
    with pytest.raises(NothingToCommit):
        catalog.commit()
    assert catalog.record().sealed == ()
    before = catalog.head()
    empty = catalog.commit(allow_empty=True)
    assert (empty.metarange, empty.parents) == (before.metarange, [before.commit_id])


def test_compaction_changes_nothing_that_is_seen(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    catalog.commit()
    catalog.delete("a")
    catalog.put("c", "x")
    seen = (catalog.visible(), catalog.diff(), catalog.committed())
    catalog.compact()
    assert catalog.record().snapshot
    assert not catalog.record().sealed
    assert (catalog.visible(), catalog.diff(), catalog.committed()) == seen
    catalog.put("b", "y")
    assert catalog.diff() == [("removed", "a"), ("changed", "b"), ("added", "c")]
    assert catalog.commit().metarange != catalog.head("main~1").metarange
    assert catalog.record().snapshot is None
    assert catalog.committed() == catalog.visible() == {"b": "y", "c": "x"}


@pytest.mark.row("B82")
def test_a_snapshot_without_staged_rows_is_committed_unchanged(catalog: Catalog) -> None:
    catalog.puts(a="x")
    catalog.compact()
    snapshot, before = catalog.record().snapshot, stored(catalog)
    assert catalog.commit().metarange == snapshot
    assert stored(catalog) == before, "a pointer was moved"


def stored(catalog: Catalog) -> list[ObjectInfo]:
    """All that lies in the repository's folder, and when it was put."""
    return list(catalog_store().list(folder_of(catalog.repository)))


def test_head_and_snapshot_are_compared_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are immutable; what is staged over them changes nothing between them."""
    catalog.puts(a="x", b="x")
    catalog.commit()
    catalog.delete("a")
    catalog.compact()
    compared: list[object] = []

    def compare(*asked: Any) -> Iterator[Change]:
        compared.append(asked)
        return diff_states(*asked)

    monkeypatch.setattr(diffs, "diff_states", compare)
    assert catalog.diff() == [("removed", "a")]
    catalog.put("b", "y")
    assert catalog.diff() == [("removed", "a"), ("changed", "b")]
    assert len(compared) == 1


@pytest.mark.row("B48", "B49")
def test_a_conflict_is_an_error_unless_a_side_is_chosen(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    catalog.commit()
    catalog.branch("work")
    catalog.put("a", "y", "work")
    catalog.commit("work")
    catalog.put("a", "z")
    catalog.commit()
    with pytest.raises(MergeConflict) as caught:
        catalog.merge("work")
    assert caught.value.keys == (b"a",)
    assert catalog.visible() == {"a": "z", "b": "x"}
    catalog.merge("work", strategy=Side.SOURCE)
    assert catalog.visible() == {"a": "y", "b": "x"}
    with pytest.raises(NothingToMerge):
        catalog.merge("work")


@pytest.mark.row("B43", "B55", "B56")
def test_a_merge_into_a_branch_with_uncommitted_changes_is_refused(catalog: Catalog) -> None:
    catalog.branch("work")
    catalog.put("a", "x", "work")
    catalog.commit("work")
    catalog.put("b", "x")
    for prepare in (lambda: None, catalog.compact):
        prepare()
        before = catalog.record()
        with pytest.raises(DirtyBranch):
            catalog.merge("work")
        with pytest.raises(DirtyBranch):
            import_entries(catalog.repository, "main", [b"i"], lambda: nullcontext(iter(())), SAID, context=CONTEXT)
        assert catalog.record() == before  # nothing is sealed for a merge that is refused
    catalog.delete("b")
    catalog.merge("work", is_squashed=True)
    assert catalog.visible() == {"a": "x"}
    assert (catalog.record().snapshot, catalog.record().sealed) == (None, ())


def test_revert_and_cherry_pick(catalog: Catalog) -> None:
    catalog.puts(a="x")
    catalog.commit()
    catalog.put("b", "x")
    second = catalog.commit()
    catalog.put("c", "x")
    catalog.commit()
    revert_commit(catalog.repository, "main", second.commit_id, SAID, context=CONTEXT)
    assert catalog.visible() == {"a": "x", "c": "x"}
    with pytest.raises(NothingToMerge):
        revert_commit(catalog.repository, "main", second.commit_id, SAID, context=CONTEXT)
    picked = cherry_pick(catalog.repository, "main", second.commit_id, None, context=CONTEXT)
    assert catalog.visible() == {"a": "x", "b": "x", "c": "x"}
    assert picked.message == second.message


def test_hard_reset_needs_a_clean_branch_or_force(catalog: Catalog) -> None:
    catalog.puts(a="x")
    first = catalog.commit()
    catalog.put("b", "x")
    catalog.commit()
    catalog.put("c", "x")
    with pytest.raises(DirtyBranch):
        hard_reset(catalog.repository, "main", "main~1", context=CONTEXT)
    hard_reset(catalog.repository, "main", "main~1", force=True, context=CONTEXT)
    assert catalog.head() == first
    assert catalog.visible() == catalog.committed() == {"a": "x"}


def test_resets_take_back_all_a_prefix_or_a_key(catalog: Catalog) -> None:
    catalog.puts(a1="x", a2="x", b="x")
    catalog.commit()
    committed = catalog.visible()

    def change() -> None:
        catalog.delete("a1")
        catalog.puts(a2="y", a3="x", b="y")

    for prepare in (lambda: None, catalog.compact):
        change()
        prepare()
        reset_prefix(catalog.repository, "main", b"a", context=CONTEXT)
        assert catalog.visible() == committed | {"b": "y"}
        assert catalog.diff() == [("changed", "b")]
        reset_key(catalog.repository, "main", b"b")
        assert (catalog.visible(), catalog.diff()) == (committed, [])
        change()
        prepare()
        reset_branch(catalog.repository, "main", context=CONTEXT)
        assert (catalog.visible(), catalog.diff()) == (committed, [])
        assert (catalog.record().sealed, catalog.record().snapshot) == ((), None)
    with pytest.raises(NothingToCommit):
        catalog.commit()


def test_a_prefix_is_deleted_by_one_row(catalog: Catalog) -> None:
    catalog.puts(a1="x", a2="x", b="x")
    catalog.commit()
    catalog.put("a3", "x")
    rows = StagedEntry.objects.count()
    delete_prefix(catalog.repository, "main", b"a", context=CONTEXT)
    assert catalog.visible() == {"b": "x"}
    with pytest.raises(EntryMissing):
        catalog.get("a1")
    assert StagedEntry.objects.count() == rows
    catalog.put("a2", "y")
    assert catalog.visible() == {"a2": "y", "b": "x"}
    assert catalog.diff() == [("removed", "a1"), ("changed", "a2")]
    catalog.compact()
    assert catalog.visible() == {"a2": "y", "b": "x"}
    catalog.commit()
    assert catalog.committed() == {"a2": "y", "b": "x"}
    assert not BranchToken.objects.filter(state=TokenState.SEALED).exists()
