"""Which commits keep their objects."""

from __future__ import annotations

import pytest

from engine.lanes.catalog.plan.retention import KeptCommit, active_commits


def history(*rows: tuple[str, str | None, int]) -> dict[str, KeptCommit]:
    return {id_: KeptCommit(id_, parent, at) for id_, parent, at in rows}


COMMITS = history(
    ("a", None, 0),
    ("b", "a", 10),
    ("c", "b", 20),
    ("d", "c", 30),
    ("e", "c", 25),  # merged into d as its second parent; nobody's first parent
    ("x", "b", 5),  # dangling
)


@pytest.mark.row("B86")
def test_first_parents_are_followed_up_to_and_including_the_first_too_old_commit() -> None:
    assert active_commits(COMMITS, {"d": 25}, dangling_before_ms=99) == {"d", "c"}
    assert active_commits(COMMITS, {"d": 0}, dangling_before_ms=99) == {"d", "c", "b", "a"}
    assert active_commits(COMMITS, {"d": 99}, dangling_before_ms=99) == {"d"}


def test_dangling_commits_are_kept_for_the_default_retention() -> None:
    assert active_commits(COMMITS, {"d": 99}, dangling_before_ms=22) == {"d", "e", "c"}
    assert active_commits(COMMITS, {"d": 99}, dangling_before_ms=0) == set(COMMITS)


def test_a_head_that_is_not_a_leaf_retains_for_longer_than_its_descendant() -> None:
    assert active_commits(COMMITS, {"d": 99, "c": 15}, dangling_before_ms=99) == {"d", "c", "b"}
    assert active_commits(COMMITS, {"d": 15, "c": 99}, dangling_before_ms=99) == {"d", "c", "b"}


def test_tags_keep_their_commit_for_ever() -> None:
    assert active_commits(COMMITS, {"d": 99}, ["a"], dangling_before_ms=99) == {"d", "a"}
