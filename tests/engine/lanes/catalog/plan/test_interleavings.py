"""The interleavings of the reference sheet, each forced step by step; the number is that of its row there."""

from __future__ import annotations

import pytest

from engine.lanes.catalog.plan.branch import (
    BranchRecord,
    BranchUpdate,
    Refusal,
    base_version_of,
    insert_token,
    is_write_valid,
    move_head,
    publish_commit,
    publish_snapshot,
    refusal,
    reset,
    seal,
    write_ticket,
)
from tests.engine.lanes.catalog.plan.world import Steps, World


def branch(**fields: object) -> BranchRecord:
    return BranchRecord(**{"uid": "u", "head": "h", "staging": "t2", "sealed": ("t1", "t0"), **fields})  # type: ignore[arg-type]


def steps(operation: Steps, count: int) -> Steps:
    """Let an operation take so many steps."""
    for _ in range(count):
        next(operation)
    return operation


def end(operation: Steps) -> object:
    """Let an operation run to its end and return what it says."""
    try:
        while True:
            next(operation)
    except StopIteration as stop:
        return stop.value


def world_with(checks_epoch: bool = True, **staged: str) -> World:
    """A branch on which these values were put and sealed."""
    world = World(checks_epoch=checks_epoch)
    for key, value in staged.items():
        end(world.put(key.encode(), value))
    world.branch = seal(world.branch, world.name("token"))
    return world


@pytest.mark.row("catalog-interleaving-1", "catalog-interleaving-2")
@pytest.mark.parametrize("compactor_steps", [1, 2])
def test_a_write_during_a_rotation_is_written_again(compactor_steps: int) -> None:
    world = world_with()
    writer = steps(world.put(b"a", "x"), 1)
    compactor = steps(world.compact(), compactor_steps)
    steps(writer, 1)
    assert end(compactor) is True
    world.sweep()
    end(writer)
    assert world.visible() == {b"a": "x"}
    assert world.rows[world.branch.staging] == {b"a": "x"}


@pytest.mark.row("B15", "B16")
def test_a_write_is_retried_after_each_rotation() -> None:
    world = world_with()
    writer = steps(world.put(b"a", "x"), 1)
    for _ in range(2):
        world.branch = seal(world.branch, world.name("token"))
        steps(writer, 2)
    end(writer)
    assert world.rows[world.branch.staging] == {b"a": "x"}


@pytest.mark.row("catalog-interleaving-4")
def test_a_write_during_the_build_wins_over_the_snapshot() -> None:
    world = world_with(a="x")
    compactor = steps(world.compact(), 2)
    end(world.put(b"a", "y"))
    assert end(compactor) is True
    assert world.visible() == {b"a": "y"}


@pytest.mark.row("catalog-interleaving-5")
@pytest.mark.parametrize("compaction", ["compact", "commit"])
@pytest.mark.parametrize("checks_epoch", [True, False])
def test_a_delete_that_misses_a_key_during_a_publish_is_restarted(checks_epoch: bool, compaction: str) -> None:
    """The lost delete: without the check of the epoch it is acknowledged, and the key stays."""
    world = world_with(checks_epoch, a="x")
    publishing = steps(getattr(world, compaction)(), 1)  # the staging token stays the same from here on
    deleter = steps(world.delete(b"a"), 2)  # it has looked into the base, and has not found the key
    end(publishing)
    world.sweep()
    end(deleter)
    assert world.visible() == ({} if checks_epoch else {b"a": "x"})


@pytest.mark.parametrize("believes_tombstones", [False, True])
def test_a_delete_does_not_believe_a_tombstone_that_came_too_late(believes_tombstones: bool) -> None:
    """A writer may reach a token that is sealed and was read by a build: what it left there goes with the token."""
    world = world_with(a="x")
    world.believes_tombstones = believes_tombstones
    late = steps(world.delete(b"a"), 2)
    compactor = steps(world.compact(), 3)  # it has read all tokens
    steps(late, 2)
    late.close()
    end(world.delete(b"a"))
    assert end(compactor) is True
    assert world.visible() == ({b"a": "x"} if believes_tombstones else {})


@pytest.mark.row("catalog-interleaving-6")
def test_a_delete_during_the_build_hides_the_key_of_the_snapshot() -> None:
    world = world_with(a="x")
    end(world.compact())
    end(world.put(b"b", "x"))
    compactor = steps(world.compact(), 2)
    end(world.delete(b"a"))
    assert end(compactor) is True
    assert world.visible() == {b"b": "x"}


@pytest.mark.row("catalog-interleaving-8")
@pytest.mark.parametrize("checks_epoch", [True, False])
def test_a_read_that_misses_swept_rows_is_restarted(checks_epoch: bool) -> None:
    world = world_with(checks_epoch, a="x")
    reader = steps(world.get(b"a"), 2)
    end(world.compact())
    world.sweep()
    assert end(reader) == ("x" if checks_epoch else None)


@pytest.mark.parametrize("checks_epoch", [True, False])
def test_a_read_that_finds_an_older_value_below_swept_rows_starts_again(checks_epoch: bool) -> None:
    """A miss is not the only thing to look at again: what lies below may be older."""
    world = world_with(checks_epoch, a="old")
    end(world.commit())
    end(world.put(b"a", "new"))
    world.branch = seal(world.branch, world.name("token"))
    reader = steps(world.get(b"a"), 2)
    end(world.compact())
    world.sweep()
    assert end(reader) == ("new" if checks_epoch else "old")


@pytest.mark.row("catalog-interleaving-10")
def test_two_compactions_of_the_same_tokens_build_the_same_state() -> None:
    world = world_with(a="x", b="y")
    base_version = world.base_version()
    made = [end(world.build(base_version)) for _ in range(2)]
    assert made[0] == made[1]
    first = publish_snapshot(world.branch, base_version, made[0].id, equals_head=False)  # type: ignore[attr-defined]
    assert isinstance(first, BranchUpdate)
    assert publish_snapshot(first.branch, base_version, "m", equals_head=False) is Refusal.LOST_SNAPSHOT


@pytest.mark.row("catalog-interleaving-11")
def test_of_two_compactions_that_rotated_the_first_to_publish_wins() -> None:
    world = world_with(a="x")
    first, second = steps(world.compact(), 2), world.compact()
    steps(second, 2)
    assert (end(first), end(second)) == (True, False)
    assert world.visible() == {b"a": "x"}


@pytest.mark.row("B80", "catalog-interleaving-12", "catalog-interleaving-13")
def test_a_commit_that_publishes_first_wins() -> None:
    world = world_with(a="x")
    compactor = steps(world.compact(), 2)
    end(world.commit())
    before = world.branch
    assert end(compactor) is False
    assert world.branch == before
    assert world.committed() == world.visible() == {b"a": "x"}


@pytest.mark.row("catalog-interleaving-14")
def test_a_commit_that_loses_to_a_compaction_rebuilds_less() -> None:
    world = world_with(a="x")
    compactor = steps(world.compact(), 2)
    end(world.put(b"b", "y"))
    commit = steps(world.commit(), 3)
    assert end(compactor) is True
    assert len(world.branch.sealed) == 1
    end(commit)
    assert world.committed() == {b"a": "x", b"b": "y"}
    assert not world.branch.sealed


@pytest.mark.row("B82", "catalog-interleaving-15")
def test_a_snapshot_without_staged_rows_is_committed_unchanged() -> None:
    world = world_with(a="x")
    end(world.compact())
    snapshot = world.branch.snapshot
    puts = world.files.store.usage.requests()["put"]
    head = end(world.commit())
    assert world.commits[str(head)].id == snapshot
    assert world.branch.snapshot is None
    assert world.files.store.usage.requests()["put"] == puts


@pytest.mark.row("catalog-interleaving-16")
def test_rows_that_undo_the_snapshot_leave_the_branch_clean() -> None:
    world = world_with(a="x")
    end(world.compact())
    end(world.delete(b"a"))
    assert end(world.commit()) == "root"
    assert (world.branch.snapshot, world.branch.sealed) == (None, ())


@pytest.mark.row("catalog-interleaving-17")
def test_tokens_sealed_by_a_commit_that_died_are_compacted() -> None:
    world = world_with(a="x")
    for value in "yz":
        end(world.put(b"a", value))
        steps(world.commit(), 1)
    assert len(world.branch.sealed) == 3
    assert end(world.compact()) is True
    assert world.branch.sealed == ()
    assert world.visible() == {b"a": "z"}


@pytest.mark.row("catalog-interleaving-18", "catalog-interleaving-19")
def test_a_reset_drops_rows_and_snapshot() -> None:
    world = world_with(a="x")
    compactor = steps(world.compact(), 2)
    world.reset_all()
    assert end(compactor) is False
    assert world.visible() == {}
    world = world_with(a="x")
    end(world.compact())
    world.reset_all()
    assert world.visible() == {}


@pytest.mark.row("catalog-interleaving-20")
def test_the_reset_of_a_key_survives_a_rotation() -> None:
    world = world_with(a="x")
    resetting = steps(world.reset_key(b"a"), 2)
    compactor = steps(world.compact(), 3)
    steps(resetting, 1)
    assert end(compactor) is True
    world.sweep()
    end(resetting)
    assert world.visible() == {}


@pytest.mark.row("catalog-interleaving-21")
def test_the_reset_of_a_prefix_survives_a_compaction() -> None:
    world = world_with(a="x", b="x")
    compactor = steps(world.compact(), 2)
    assert end(world.reset_prefix(b"a")) is True
    end(compactor)
    assert world.visible() == {b"b": "x"}


@pytest.mark.row("catalog-interleaving-22")
def test_a_compaction_of_nothing_leaves_a_clean_branch() -> None:
    world = world_with()
    merge = steps(world.merge({b"a": "m"}), 1)
    end(world.compact())
    assert world.branch.snapshot is None
    assert end(merge) is False  # its tokens were retired: it is tried again by its caller
    assert end(world.merge({b"a": "m"})) is True


@pytest.mark.row("B55", "B56", "catalog-interleaving-23")
def test_a_merge_sees_changes_compacted_meanwhile() -> None:
    world = world_with()
    merge = steps(world.merge({b"a": "m"}), 1)
    end(world.put(b"b", "x"))
    end(world.compact())
    assert end(merge) is False
    assert end(world.merge({b"a": "m"})) is False  # the snapshot differs from the commit
    assert world.visible() == {b"b": "x"}


@pytest.mark.row("catalog-interleaving-24", "catalog-interleaving-25", "catalog-interleaving-26")
def test_a_head_that_moved_ends_the_compaction() -> None:
    base_version = base_version_of(branch())
    moved = move_head(branch(), base_version, "h2", is_clean=True)
    assert isinstance(moved, BranchUpdate)
    assert publish_snapshot(moved.branch, base_version, "m", equals_head=False) is Refusal.LOST_HEAD
    # Also where the tokens are as they were.
    assert refusal(branch(head="h2"), base_version) is Refusal.LOST_HEAD
    assert move_head(branch(snapshot="m"), base_version_of(branch(snapshot="m")), "h2", is_clean=False) is Refusal.DIRTY
    cleared = move_head(branch(snapshot="m"), base_version_of(branch(snapshot="m")), "h2", is_clean=True)
    assert isinstance(cleared, BranchUpdate)
    assert (cleared.branch.snapshot, cleared.branch.sealed, cleared.retired) == (None, (), ("t1", "t0"))


@pytest.mark.row("catalog-interleaving-28", "catalog-interleaving-29")
def test_nothing_is_published_on_a_deleted_or_recreated_branch() -> None:
    base_version = base_version_of(branch())
    for found in (None, branch(uid="v")):
        assert publish_snapshot(found, base_version, "m", equals_head=False) is Refusal.GONE
        assert publish_commit(found, base_version, "h2") is Refusal.GONE
        assert move_head(found, base_version, "h2", is_clean=True) is Refusal.GONE
        assert insert_token(found, base_version, "t") is Refusal.GONE
        assert not is_write_valid(write_ticket(branch()), found, decides=False)


@pytest.mark.row("catalog-interleaving-36")
def test_tokens_of_a_compaction_that_died_are_compacted_by_the_next() -> None:
    world = world_with(a="x")
    steps(world.compact(), 1)
    end(world.put(b"a", "y"))
    assert end(world.compact()) is True
    assert world.visible() == {b"a": "y"}
    assert world.branch.sealed == ()


@pytest.mark.row("B57", "catalog-interleaving-40")
def test_a_snapshot_that_equals_the_commit_does_not_stop_a_merge() -> None:
    world = world_with(a="x")
    end(world.commit())
    world.branch = world.branch.next_version(snapshot=world.commits[world.branch.head].id)
    assert end(world.merge({b"b": "m"})) is True
    assert world.branch.snapshot is None
    assert world.visible() == {b"a": "x", b"b": "m"}


@pytest.mark.row("B81")
def test_two_compactions_with_writes_between_and_a_commit() -> None:
    world = world_with(a="x", b="x")
    end(world.compact())
    end(world.delete(b"a"))
    end(world.put(b"c", "y"))
    end(world.compact())
    end(world.put(b"b", "z"))
    visible = world.visible()
    end(world.commit())
    assert world.committed() == world.visible() == visible == {b"b": "z", b"c": "y"}


def test_newer_tokens_stay_when_older_ones_are_published() -> None:
    older = base_version_of(branch())
    newer = seal(branch(), "t3")
    for moved in (publish_snapshot(newer, older, "m", equals_head=False), publish_commit(newer, older, "h2")):
        assert isinstance(moved, BranchUpdate)
        assert (moved.branch.staging, moved.branch.sealed, moved.retired) == ("t3", ("t2",), ("t1", "t0"))
        assert (moved.branch.epoch, moved.branch.generation) == (2, 2)
    assert move_head(newer, older, "h2", is_clean=True) is Refusal.DIRTY
    laid = insert_token(newer, older, "r")
    assert isinstance(laid, BranchUpdate)
    assert laid.branch.sealed == ("t2", "r", "t1", "t0")
    assert reset(newer, "t4").retired == ("t3", "t2", "t1", "t0")


def test_an_empty_staging_token_is_not_sealed() -> None:
    assert seal(branch(), "t3", is_empty=True) == branch()


@pytest.mark.parametrize("sealed", [(), ("t0",), ("t1",), ("t0", "t1"), ("t1", "t0", "t")])
def test_tokens_that_are_not_the_end_of_the_list_are_lost(sealed: tuple[str, ...]) -> None:
    assert refusal(branch(sealed=sealed), base_version_of(branch())) is Refusal.LOST_TOKENS


def test_a_value_that_is_put_needs_its_token_only_and_a_decision_the_layers_too() -> None:
    ticket, moved = write_ticket(branch()), branch(epoch=1)
    assert is_write_valid(ticket, moved, decides=False)
    assert not is_write_valid(ticket, moved, decides=True)
    assert not is_write_valid(ticket, seal(branch(), "t3"), decides=False)
