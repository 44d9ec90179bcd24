"""A place in a tree has one number in every tree that has the place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.query.flame.frame_paths import ROOT_ID, path_ids, path_to, subtree
from engine.query.flame.tree import FlameTree
from tests.engine.query.flame.stacks import Stacks, folded, stacks_of, tree_of

names = st.sampled_from([b"main", b"work", b"parse", b"caf\xe9", b""])
STACKS = st.dictionaries(st.lists(names, max_size=5).map(tuple), st.integers(1, 1000), min_size=1, max_size=12)


def path_names(tree: FlameTree, path: list[int]) -> tuple[bytes, ...]:
    nodes = tree.nodes()
    return tuple(nodes.names[nodes.name_refs[node]] for node in path)


def test_known_numbers() -> None:
    """The page's script computes the same ones."""
    tree = tree_of(folded("main;work 1, main 2"))
    assert [f"{number:016x}" for number in path_ids(tree.nodes()).tolist()] == [
        f"{ROOT_ID:016x}",
        "af63bd4d452a8543",
        "30ffed4cda8ed959",
    ]


@given(STACKS)
def test_each_place_is_found_by_its_number(stacks: Stacks) -> None:
    tree = tree_of(stacks)
    ids = path_ids(tree.nodes()).tolist()
    assert len(set(ids)) == len(ids)
    parents = tree.nodes().parents.tolist()
    for node, number in enumerate(ids):
        path = path_to(tree.nodes(), number)
        assert (path[-1] if path else 0) == node
        assert [parents[one] for one in path] == [0, *path][:-1]


@pytest.mark.slow
@given(STACKS, STACKS)
def test_a_place_has_the_same_number_in_another_tree(left: Stacks, right: Stacks) -> None:
    one, other = tree_of(left), tree_of(right)
    for number in path_ids(one.nodes()).tolist():
        found = path_to(other.nodes(), number)
        if found:
            assert path_names(other, found) == path_names(one, path_to(one.nodes(), number))


@given(STACKS)
def test_a_part_has_the_stacks_below_its_place(stacks: Stacks) -> None:
    tree = tree_of(stacks)
    for number in path_ids(tree.nodes()).tolist():
        path = path_to(tree.nodes(), number)
        part = subtree(tree, path[-1] if path else 0)
        above = path_names(tree, path)
        begins = [stack for stack in stacks if stack[: len(above)] == above]
        kept = {stack[max(0, len(above) - 1) :]: stacks[stack] for stack in begins}
        assert stacks_of(part) == kept


def test_what_is_not_there_is_not_found() -> None:
    nodes = tree_of(folded("main 1")).nodes()
    assert path_to(nodes, 1) == path_to(nodes, -1) == path_to(nodes, 1 << 64) == path_to(FlameTree().nodes(), 5) == []
