"""Top tables and sandwiches: equal to naive counting over stacks, recursion counted once."""

from __future__ import annotations

import pytest
from hypothesis import given

from engine.core.errors import LimitExceeded
from engine.query.flame.sandwich import sandwich
from engine.query.flame.top_table import FunctionDifference, FunctionTotals, top_table, top_table_diff
from engine.query.flame.tree import FlameTree
from tests.engine.query.flame.stacks import Stacks, folded, names, stack_sets, stacks_of, tree_of

RECURSIVE = "main;f;g;f 5, main;f 2, main;g 1, main 4"


def naive_top(stacks: Stacks) -> dict[str, tuple[int, int]]:
    functions = {name for stack in stacks for name in stack}
    return {
        name.decode("utf-8", "replace"): (
            sum(value for stack, value in stacks.items() if stack and stack[-1] == name),
            sum(value for stack, value in stacks.items() if name in stack),
        )
        for name in functions
    }


def test_recursion_counts_once() -> None:
    assert top_table(tree_of(folded(RECURSIVE))) == [
        FunctionTotals("f", 7, 7),
        FunctionTotals("main", 4, 12),
        FunctionTotals("g", 1, 6),
    ]
    assert top_table(FlameTree()) == []


@given(stack_sets)
def test_a_top_table_is_what_counting_gives(stacks: Stacks) -> None:
    rows = top_table(tree_of(stacks))
    assert {row.name: (row.own, row.total) for row in rows} == naive_top(stacks)
    assert [row.own for row in rows] == sorted((row.own for row in rows), reverse=True)


@given(stack_sets, stack_sets)
def test_a_compared_table_has_both_sides(left: Stacks, right: Stacks) -> None:
    rows = top_table_diff(tree_of(left), tree_of(right))
    for side, stacks in ((slice(1, 3), left), (slice(3, 5), right)):
        assert {row.name: row[side] for row in rows if any(row[side])} == naive_top(stacks)
    changes = [abs(row.right_own - row.left_own) for row in rows]
    assert changes == sorted(changes, reverse=True)


def test_the_largest_change_comes_first() -> None:
    rows = top_table_diff(tree_of(folded("a;b 5, c 9")), tree_of(folded("a;b 1, c 8, d 1")))
    assert rows == [
        FunctionDifference("b", 5, 5, 1, 1),
        FunctionDifference("c", 9, 9, 8, 8),
        FunctionDifference("d", 0, 0, 1, 1),
        FunctionDifference("a", 0, 5, 0, 1),
    ]


def test_a_function_between_its_callers_and_callees() -> None:
    tree = tree_of(folded("main;a;f;x 3, main;b;f;y 4, main;b;f 1, f;f;x 5, main 9"))
    found = sandwich(tree, b"f")
    assert stacks_of(found.callers) == folded("f;a;main 3, f;b;main 5, f 5")
    assert stacks_of(found.callees) == folded("f;x 3, f;y 4, f 1, f;f;x 5")


@given(stack_sets, names)
def test_both_halves_have_what_naive_cutting_gives(stacks: Stacks, name: bytes) -> None:
    callers: Stacks = {}
    callees: Stacks = {}
    for stack, value in stacks.items():
        if name in stack:
            place = stack.index(name)
            above, below = tuple(reversed(stack[: place + 1])), stack[place:]
            callers[above] = callers.get(above, 0) + value
            callees[below] = callees.get(below, 0) + value
    found = sandwich(tree_of(stacks), name)
    assert stacks_of(found.callers) == callers
    assert stacks_of(found.callees) == callees


def test_callers_that_would_be_far_larger_than_the_tree_are_refused() -> None:
    tree = FlameTree()
    chain = [b"%d" % depth for depth in range(300)]
    for depth in range(300):
        tree.add_stack([*chain[:depth], b"f"], 1)
    assert sandwich(tree, b"f", frames_max=45_150).callers.total == 300
    with pytest.raises(LimitExceeded, match="more than 45149 frames"):
        sandwich(tree, b"f", frames_max=45_149)
