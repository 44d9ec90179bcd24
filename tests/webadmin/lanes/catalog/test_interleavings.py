"""The interleavings of the reference on two real connections, each in the order that it is about.

The compactor goes step by step in this thread: ``seal`` rotates, ``build`` reads and writes, ``publish`` puts its state
under the branch and the rows of retired tokens are swept at once, without any grace. The other operation stops before
the statement that is named. Each order is an entry of ``ORDERS`` and has a repository of its own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection

from engine.lanes.catalog.plan.branch import BranchUpdate, Refusal, is_write_valid
from tests.processes import wait_until
from tests.webadmin.lanes.catalog.order_steps import (
    BEGIN_BUILD,
    INSERT,
    LOOK_AGAIN,
    PUBLISH,
    ROWS,
    TAKE_BACK,
    Compactor,
    every_order,
    is_waited_for_a_lock,
    sweep,
    with_committed,
)
from tests.webadmin.lanes.catalog.short import CONTEXT, SAID, Catalog, new_catalog
from tests.webadmin.lanes.catalog.stepping import Stepped
from webadmin.lanes.catalog.errors import (
    BranchBusy,
    BranchMissing,
    DirtyBranch,
    NothingToCommit,
    PreconditionFailed,
)
from webadmin.lanes.catalog.models import (
    StagedEntry,
)
from webadmin.lanes.catalog.services import write_objects
from webadmin.lanes.catalog.services.branches import create_branch, delete_branch
from webadmin.lanes.catalog.services.move_heads import hard_reset, revert_commit
from webadmin.lanes.catalog.services.records import seal_branch
from webadmin.lanes.catalog.services.reset_branch import reset_branch, reset_key, reset_prefix
from webadmin.lanes.catalog.services.write_objects import WrittenRows, delete_prefix
from webadmin.lanes.catalog.states import Why


def order_1_a_set_whose_token_is_sealed_before_it_looks_again(catalog: Catalog) -> None:
    setting = Stepped(lambda: catalog.put("k", "x"), LOOK_AGAIN)
    Compactor(catalog).run()
    setting.end()
    assert catalog.visible() == {"k": "x"}
    assert StagedEntry.objects.filter(branch_id=int(catalog.record().uid)).count() == 1  # written again


def order_2_a_set_that_is_late_for_its_token(catalog: Catalog) -> None:
    catalog.puts(a="x")
    deleting = Stepped(lambda: catalog.delete("a"), INSERT)
    Compactor(catalog).run()
    deleting.end()
    assert catalog.visible() == {}


def order_3_and_b17_a_set_meets_a_rotation_in_each_of_its_tries(catalog: Catalog) -> None:
    setting = Stepped(lambda: catalog.put("k", "x"), LOOK_AGAIN)
    for try_number in range(write_objects.TRIES):
        Compactor(catalog).run()
        if try_number < write_objects.TRIES - 1:
            setting.to(LOOK_AGAIN)
    with pytest.raises(BranchBusy):
        setting.end()


def order_4_a_set_between_rotation_and_publication(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    catalog.put("k", "y")
    compactor.run()
    assert catalog.visible() == {"k": "y"}


def order_5_a_delete_looks_into_layers_that_move_past_it(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    deleting = Stepped(lambda: catalog.delete("k"), ROWS)  # it has read the record, and will look into the old layers
    compactor.run()
    deleting.end()
    assert catalog.visible() == {}


def order_5b_the_same_with_a_commit_in_place_of_the_compactor(catalog: Catalog) -> None:
    catalog.puts(k="x")
    committing = Stepped(catalog.commit, PUBLISH)
    deleting = Stepped(lambda: catalog.delete("k"), ROWS)
    committing.end()
    sweep()
    deleting.end()
    assert catalog.visible() == {}
    assert catalog.committed() == {"k": "x"}


def order_6_a_delete_of_what_is_in_the_base_only(catalog: Catalog) -> None:
    compactor = with_committed(catalog, k="x")
    catalog.put("a", "x")
    compactor.seal().build()
    catalog.delete("k")
    compactor.run()
    assert catalog.visible() == {"a": "x"}


def order_7_a_condition_that_was_found_to_hold_in_old_layers(catalog: Catalog) -> None:
    catalog.puts(a="x")
    compactor = Compactor(catalog).seal().build()
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True), LOOK_AGAIN)
    compactor.run()
    setting.end()  # it finds its own row, which is no reason to refuse it
    assert catalog.visible() == {"a": "x", "k": "x"}


def order_7b_a_merge_brings_the_key_that_was_to_be_absent(catalog: Catalog) -> None:
    create_branch(catalog.repository, "work", "main", context=CONTEXT)
    catalog.put("k", "m", "work")
    catalog.commit("work")
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True), INSERT)
    catalog.merge("work")
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert catalog.visible() == {"k": "m"}


def order_7c_of_two_that_want_it_absent_one_has_it(catalog: Catalog) -> None:
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True), INSERT)
    catalog.put("k", "y", if_absent=True)
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert catalog.visible() == {"k": "y"}


def refused(catalog: Catalog) -> tuple[Stepped, WrittenRows]:
    """A value that was written where nothing may be, is refused since a merge brought the key, and is about to be taken
    back."""
    create_branch(catalog.repository, "work", "main", context=CONTEXT)
    catalog.put("k", "m", "work")
    catalog.commit("work")
    written = WrittenRows()
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True, written=written), INSERT)
    catalog.merge("work")
    setting.to(TAKE_BACK)
    return setting, written


def order_7d_what_was_refused_is_taken_back(catalog: Catalog) -> None:
    setting, written = refused(catalog)
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert (written.count, catalog.visible(), catalog.diff()) == (0, {"k": "m"}, [])


def order_7e_what_was_refused_is_committed_before_it_is_taken_back(catalog: Catalog) -> None:
    setting, written = refused(catalog)
    catalog.commit()
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert (written.count, catalog.committed()) == (1, {"k": "x"})


def order_7f_what_was_refused_is_sealed_before_it_is_taken_back(catalog: Catalog) -> None:
    setting, written = refused(catalog)
    seal_branch(int(catalog.record().uid), why=Why.COMMIT)
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert (written.count, catalog.commit() and catalog.committed()) == (1, {"k": "x"})


def order_7g_a_value_is_committed_before_it_is_looked_at_again(catalog: Catalog) -> None:
    written = WrittenRows()
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True, written=written), LOOK_AGAIN)
    catalog.commit()
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert (written.count, catalog.committed()) == (1, {"k": "x"})


def order_7h_a_row_stays_in_a_sealed_token_and_a_later_one_is_taken_back(catalog: Catalog) -> None:
    written = WrittenRows()
    setting = Stepped(lambda: catalog.put("k", "x", if_absent=True, written=written), LOOK_AGAIN)
    seal_branch(int(catalog.record().uid), why=Why.COMMIT)
    setting.to(INSERT)
    setting.to(LOOK_AGAIN)
    catalog.commit()
    with pytest.raises(PreconditionFailed):
        setting.end()
    assert (written.count, catalog.committed()) == (2, {"k": "x"})


def order_8_a_get_while_its_layers_go(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    getting = Stepped(lambda: catalog.get("k"), "UNION ALL")
    compactor.run()
    assert getting.end() == "x"


def order_9_a_listing_while_its_layers_go(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    compactor = Compactor(catalog).seal().build()
    listing = Stepped(catalog.visible, 'FROM "catalog_stagedentry"')
    catalog.put("c", "x")
    compactor.run()
    assert listing.end() in ({"a": "x", "b": "x"}, {"a": "x", "b": "x", "c": "x"})


def order_10_two_compactors_of_the_same_layers(catalog: Catalog) -> None:
    catalog.puts(k="x")
    first, second = Compactor(catalog).seal().build(), Compactor(catalog).seal().build()
    assert first.made == second.made
    assert isinstance(first.publish(), BranchUpdate)
    assert second.publish() is Refusal.LOST_SNAPSHOT
    assert catalog.visible() == {"k": "x"}


def order_11_a_second_compactor_rotates_later(catalog: Catalog) -> None:
    catalog.puts(k="x")
    first = Compactor(catalog).seal().build()
    catalog.put("l", "x")
    second = Compactor(catalog).seal().build()
    assert isinstance(first.publish(), BranchUpdate)
    assert second.publish() is Refusal.LOST_SNAPSHOT
    assert catalog.visible() == {"k": "x", "l": "x"}


def order_13_a_commit_is_quicker_than_the_compactor(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    catalog.put("l", "x")
    catalog.commit()
    assert compactor.publish() is Refusal.LOST_HEAD
    assert catalog.committed() == catalog.visible() == {"k": "x", "l": "x"}


def order_12_and_14_the_compactor_is_quicker_than_a_commit(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    catalog.put("l", "x")
    committing = Stepped(catalog.commit, BEGIN_BUILD)
    compactor.run()
    committing.end()
    assert catalog.committed() == {"k": "x", "l": "x"}
    assert (catalog.record().snapshot, catalog.record().sealed, catalog.diff()) == (None, (), [])


def order_15_a_commit_whose_tokens_were_all_folded_commits_the_snapshot(catalog: Catalog) -> None:
    catalog.puts(k="x")
    compactor = Compactor(catalog).seal().build()
    committing = Stepped(catalog.commit, BEGIN_BUILD)
    compactor.run()
    snapshot = catalog.record().snapshot
    assert committing.end().metarange == snapshot
    assert (catalog.committed(), catalog.record().snapshot) == ({"k": "x"}, None)


def order_16_rows_undo_the_snapshot(catalog: Catalog) -> None:
    catalog.puts(k="x")
    Compactor(catalog).run()
    catalog.delete("k")
    with pytest.raises(NothingToCommit):
        catalog.commit()
    assert (catalog.record().snapshot, catalog.record().sealed) == (None, ())


def order_17_what_a_dead_commit_sealed_is_folded(catalog: Catalog) -> None:
    for number in range(3):
        catalog.put("k", str(number))
        seal_branch(int(catalog.record().uid), why=Why.COMMIT)
    assert len(catalog.record().sealed) == 3
    Compactor(catalog).run()
    assert (catalog.record().sealed, catalog.visible()) == ((), {"k": "2"})


def order_18_and_19_a_reset_during_a_compaction_and_after_one(catalog: Catalog) -> None:
    compactor = with_committed(catalog, a="x")
    catalog.put("k", "x")
    compactor.seal().build()
    reset_branch(catalog.repository, "main", context=CONTEXT)
    assert compactor.publish() is Refusal.LOST_TOKENS
    catalog.put("k", "x")
    Compactor(catalog).run()
    reset_branch(catalog.repository, "main", context=CONTEXT)
    assert (catalog.visible(), catalog.record().snapshot) == ({"a": "x"}, None)


def order_20_a_reset_of_a_key_around_a_compaction(catalog: Catalog) -> None:
    catalog.puts(k="x")
    resetting = Stepped(lambda: reset_key(catalog.repository, "main", b"k"), INSERT)
    Compactor(catalog).run()
    resetting.end()
    assert (catalog.visible(), catalog.diff()) == ({}, [])


def order_21_a_reset_of_a_prefix_during_a_compaction(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    compactor = Compactor(catalog).seal().build()
    reset_prefix(catalog.repository, "main", b"a", context=CONTEXT)
    compactor.publish()
    assert catalog.visible() == {"b": "x"}


def order_21b_a_compaction_during_a_reset_of_a_prefix(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    resetting = Stepped(
        lambda: reset_prefix(catalog.repository, "main", b"a", context=CONTEXT), 'FROM "catalog_stagedinterval"'
    )
    Compactor(catalog).run()
    resetting.end()
    assert catalog.visible() == {"b": "x"}


def order_21c_a_prefix_is_deleted_during_a_compaction(catalog: Catalog) -> None:
    catalog.puts(a="x", b="x")
    compactor = Compactor(catalog).seal().build()
    catalog.put("aa", "x")
    delete_prefix(catalog.repository, "main", b"a", context=CONTEXT)
    compactor.run()
    assert catalog.visible() == {"b": "x"}
    catalog.put("aa", "y")
    Compactor(catalog).run()
    assert catalog.visible() == {"aa": "y", "b": "x"}


def prepare_merge(catalog: Catalog) -> None:
    create_branch(catalog.repository, "work", "main", context=CONTEXT)
    catalog.put("m", "x", "work")
    catalog.commit("work")


def order_22_a_compaction_of_nothing_during_a_merge(catalog: Catalog) -> None:
    prepare_merge(catalog)
    merging = Stepped(lambda: catalog.merge("work"), BEGIN_BUILD)
    Compactor(catalog).run()
    assert catalog.record().snapshot is None
    merging.end()
    assert catalog.committed() == {"m": "x"}


def order_23_a_set_is_folded_during_a_merge(catalog: Catalog) -> None:
    prepare_merge(catalog)
    merging = Stepped(lambda: catalog.merge("work"), BEGIN_BUILD)
    catalog.put("k", "x")
    Compactor(catalog).run()
    with pytest.raises(DirtyBranch):
        merging.end()
    assert (catalog.visible(), catalog.committed()) == ({"k": "x"}, {})


def order_24_and_25_a_head_that_moves_ends_the_compaction(catalog: Catalog) -> None:
    with_committed(catalog, a="x")
    prepare_merge(catalog)
    for move in (
        lambda: catalog.merge("work"),
        lambda: revert_commit(catalog.repository, "main", "work", SAID, context=CONTEXT),
        lambda: hard_reset(catalog.repository, "main", "main~1", context=CONTEXT),
    ):
        compactor = Compactor(catalog).seal().build()
        move()
        visible = catalog.visible()
        assert compactor.publish() is Refusal.LOST_HEAD
        assert catalog.visible() == catalog.committed() == visible


def order_26_a_hard_reset_over_a_snapshot(catalog: Catalog) -> None:
    with_committed(catalog, a="x")
    catalog.put("k", "x")
    Compactor(catalog).run()
    with pytest.raises(DirtyBranch):
        hard_reset(catalog.repository, "main", "main~1", context=CONTEXT)
    hard_reset(catalog.repository, "main", "main~1", force=True, context=CONTEXT)
    assert (catalog.visible(), catalog.record().snapshot) == ({}, None)


def order_27_a_merge_from_a_branch_that_is_compacted_meanwhile(catalog: Catalog) -> None:
    compactor = with_committed(catalog, a="x")
    create_branch(catalog.repository, "work", "main~1", context=CONTEXT)
    catalog.put("k", "x")
    compactor.seal().build()
    merging = Stepped(lambda: catalog.merge("main", "work"), BEGIN_BUILD)
    compactor.run()
    merging.end()
    assert catalog.committed("work") == {"a": "x"}
    assert catalog.visible() == {"a": "x", "k": "x"}


def order_28_and_29_the_branch_is_deleted_and_made_again(catalog: Catalog) -> None:
    create_branch(catalog.repository, "other", "main", context=CONTEXT)
    catalog.repository.default_branch = "other"
    catalog.put("k", "x")
    compactor = Compactor(catalog).seal().build()
    delete_branch(catalog.repository, "main", context=CONTEXT)
    assert compactor.publish() is Refusal.GONE
    create_branch(catalog.repository, "main", "other", context=CONTEXT)
    assert compactor.publish() is Refusal.GONE
    assert catalog.visible() == {}


def order_b18_the_branch_is_deleted_while_a_value_is_put(catalog: Catalog) -> None:
    create_branch(catalog.repository, "work", "main", context=CONTEXT)
    for condition in ({}, {"if_absent": True}):
        key = f"k{len(condition)}"
        setting = Stepped(lambda key=key, told=condition: catalog.put(key, "x", "work", **told), LOOK_AGAIN)
        delete_branch(catalog.repository, "work", context=CONTEXT)
        with pytest.raises(BranchMissing):
            setting.end()
        assert StagedEntry.objects.filter(key=key.encode()).exists()  # it was written, to a token that is swept
        create_branch(catalog.repository, "work", "main", context=CONTEXT)
        assert catalog.visible("work") == {}


def order_30_a_branch_is_made_from_one_that_is_compacted(catalog: Catalog) -> None:
    compactor = with_committed(catalog, a="x")
    catalog.put("k", "x")
    compactor.seal().build()
    catalog.branch("work")
    compactor.run()
    assert catalog.visible("work") == {"a": "x"}


def order_b70_and_b46_rows_go_while_others_are_written(catalog: Catalog) -> None:
    for number in range(5):
        catalog.put(f"k{number}", "x")
    catalog.commit()
    catalog.put("l", "x")
    swept = Stepped(sweep, 'FROM "catalog_branchtoken"')
    catalog.put("m", "x")
    swept.end()
    assert set(catalog.visible()) == {"k0", "k1", "k2", "k3", "k4", "l", "m"}


ORDERS = [each for name, each in globals().items() if name.startswith("order_")]
LOST_DELETES = [
    order_5_a_delete_looks_into_layers_that_move_past_it,
    order_5b_the_same_with_a_commit_in_place_of_the_compactor,
]


@pytest.mark.row("B17", "B18", "B46", "B70")
def test_every_interleaving_of_the_table_ends_as_required(real_catalog: Catalog) -> None:
    every_order(ORDERS)


def test_nothing_is_taken_back_of_a_token_that_is_just_being_sealed(real_catalog: Catalog) -> None:
    """The seal has changed the branch, which is not visible before its transaction ends."""
    setting, written = refused(real_catalog)
    branch_id = int(real_catalog.record().uid)
    sealing = Stepped(lambda: seal_branch(branch_id, why=Why.COMMIT), 'UPDATE "catalog_branchtoken"')
    with ThreadPoolExecutor(1) as pool:
        taking_back = pool.submit(setting.end)
        if connection.vendor == "postgresql":
            wait_until(lambda: taking_back.done() or is_waited_for_a_lock(), "it waits for the seal", 60)
        sealing.end()
        with pytest.raises(PreconditionFailed):
            taking_back.result()
    assert (written.count, StagedEntry.objects.filter(branch_id=branch_id).count()) == (1, 1)


def test_without_the_epoch_deletes_are_lost(real_catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        write_objects,
        "is_write_valid",
        lambda ticket, branch, *, decides: is_write_valid(ticket, branch, decides=False),
    )
    for number, order in enumerate(LOST_DELETES):
        catalog = new_catalog(name=f"order-{number}")
        with pytest.raises(AssertionError):
            order(catalog)
        assert catalog.visible() == {"k": "x"}, "the delete was acknowledged, and the entry is there"
