"""Stack trees as trees of functions: inlined functions, locations nobody knows, several trees, wrong references."""

from __future__ import annotations

import numpy as np
import pytest

from engine.profiles.errors import BadReference
from engine.profiles.model import Function, Location, Mapping, StackTree, SymbolPartition
from engine.profiles.query.frames import FrameTree

STRINGS = [b"", b"main", b"outer", b"inlined", b"/usr/bin/program"]
FUNCTIONS = [Function(name, name, 0, 0) for name in (1, 2, 3)]
MAPPINGS = [Mapping(4, 0, 0, 0, 0, 0), Mapping(0, 0, 0, 0, 0, 0)]
LOCATIONS = [
    Location(0, 0, ((0, 1),)),
    Location(0, 0, ((2, 7), (1, 8))),  # innermost first
    Location(0, 0x1F, ()),
    Location(1, 0x20, ()),
]


def partition(*trees: StackTree, functions: list[Function] | None = None) -> SymbolPartition:
    return SymbolPartition(
        strings=list(STRINGS),
        mappings=MAPPINGS,
        functions=FUNCTIONS if functions is None else functions,
        locations=LOCATIONS,
        trees=list(trees),
    )


def names(tree: FrameTree, stack_id: int) -> list[str]:
    """Return a stack's functions, root first."""
    [place] = tree.places(np.array([stack_id], np.uint64)).tolist()
    node, found = int(tree.leaves[place]), list[str]()
    while node:
        found.append(tree.strings[tree.functions[node]].decode())
        node = int(tree.parents[node])
    return found[::-1]


def test_lines_become_a_chain_and_what_nobody_knows_has_its_address() -> None:
    tree = FrameTree.of(partition(StackTree(parents=[-1, 0, 1, 2, 2], locations=[0, 0, 1, 2, 3])))
    assert names(tree, 0) == []
    assert names(tree, 1) == ["main"]
    assert names(tree, 2) == ["main", "outer", "inlined"]
    assert names(tree, 3) == ["main", "outer", "inlined", "program!0x1f"]
    assert names(tree, 4) == ["main", "outer", "inlined", "unknown!0x20"]
    assert (tree.parents[1:] < np.arange(1, len(tree.parents))).all()
    assert (tree.parents[0], tree.functions[0], tree.strings[0]) == (-1, 0, b"")
    assert tree.size_bytes > 0


def test_several_trees_hang_under_one_root() -> None:
    first = StackTree(parents=[-1, 0], locations=[0, 0], max_nodes=4)
    second = StackTree(parents=[-1, 0, 1], locations=[3, 1, 0], max_nodes=4)
    tree = FrameTree.of(partition(first, second))
    assert [names(tree, stack) for stack in (1, 4, 5, 6)] == [
        ["main"],
        [],
        ["outer", "inlined"],
        ["outer", "inlined", "main"],
    ]


@pytest.mark.parametrize("stack_id", [2, 3, 7, 8, 1 << 63, (1 << 64) - 1])
def test_a_stack_that_is_not_there_is_a_bad_reference(stack_id: int) -> None:
    trees = [
        StackTree(parents=[-1, 0], locations=[0, 0], max_nodes=4),
        StackTree(parents=[-1, 0, 1], locations=[0, 1, 0], max_nodes=4),
    ]
    tree = FrameTree.of(partition(*trees))
    with pytest.raises(BadReference, match=f"stack {stack_id} is not"):
        tree.places(np.array([1, stack_id], np.uint64))


def test_a_partition_without_anything_has_a_root_and_no_stacks() -> None:
    tree = FrameTree.of(SymbolPartition(trees=[]))
    assert tree.parents.tolist() == [-1]
    assert tree.places(np.array([], np.uint64)).tolist() == []
    with pytest.raises(BadReference):
        tree.places(np.array([0], np.uint64))


def test_lines_without_any_function_are_not_followed() -> None:
    tree = FrameTree.of(partition(StackTree(parents=[-1, 0], locations=[0, 0]), functions=[]))
    assert names(tree, 1) == ["program!0x0"]
