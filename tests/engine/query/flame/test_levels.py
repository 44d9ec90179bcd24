"""Levels of flame graphs: the sheet's examples number by number, and reading back what was drawn."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.errors import LimitExceeded
from engine.query.flame.levels import FlameGraph, FlameGraphDiff, flame_graph, flame_graph_diff
from engine.query.flame.tree import FlameTree
from tests.engine.query.flame.stacks import (
    Stacks,
    drawn_stacks,
    folded,
    naive_totals,
    read_levels,
    stack_sets,
    tree_of,
)

EXAMPLE = "main;work;parse 30, main;work;render 50, main;work 5, main;idle 10, gc 5"
EXAMPLE_RIGHT = "main;work;parse 60, main;work;render 20, main;net 15, gc 5"
counts = st.integers(-1, 30)


@pytest.mark.parametrize(
    ("stacks", "max_nodes", "names", "levels", "total", "max_self"),
    [
        (
            EXAMPLE,
            0,
            "total main work render parse idle gc",
            [[0, 100, 0, 0], [0, 5, 5, 6, 0, 95, 0, 1], [5, 10, 10, 5, 0, 85, 5, 2], [20, 30, 30, 4, 0, 50, 50, 3]],
            100,
            50,
        ),
        (
            EXAMPLE,
            4,
            "total other main work render parse",
            [[0, 100, 0, 0], [0, 95, 0, 2, 0, 5, 5, 1], [0, 85, 5, 3, 0, 10, 10, 1], [5, 30, 30, 5, 0, 50, 50, 4]],
            100,
            50,
        ),
        (
            EXAMPLE,
            3,
            "total other main work render",
            [[0, 100, 0, 0], [0, 95, 0, 2, 0, 5, 5, 1], [0, 85, 5, 3, 0, 10, 10, 1], [5, 50, 50, 4, 0, 30, 30, 1]],
            100,
            50,
        ),
        (
            "b;other 3, b;z 2, b;a 1",
            3,
            "total b other z",
            [[0, 6, 0, 0], [0, 6, 0, 1], [0, 2, 2, 3, 0, 4, 4, 2]],
            6,
            4,
        ),
        (
            "a;b;e 1, a;c 2, a;c;d 1",
            0,
            "total a c d b e",
            [[0, 4, 0, 0], [0, 4, 0, 1], [0, 1, 0, 4, 0, 3, 2, 2], [0, 1, 1, 5, 2, 1, 1, 3]],
            4,
            2,
        ),
        (
            "foo;bar 1, foo;bar;baz 1, foo;qux 2, fred;zoo 1, fred;other 1",
            4,
            "total fred other foo qux bar",
            [
                [0, 6, 0, 0],
                [0, 4, 0, 3, 0, 2, 0, 1],
                [0, 2, 1, 5, 0, 2, 2, 4, 0, 2, 2, 2],
                [1, 1, 1, 2],
            ],
            6,
            2,
        ),
        (
            "total;a 2, total 1",
            0,
            "total a",
            [[0, 3, 0, 0], [0, 3, 1, 0], [1, 2, 2, 1]],
            3,
            2,
        ),
    ],
)
def test_known_levels(
    stacks: str, max_nodes: int, names: str, levels: list[list[int]], total: int, max_self: int
) -> None:
    """Examples 1 and 2 of the sheet and its variants, rows 41 and 42, and a function called total."""
    graph = flame_graph(tree_of(folded(stacks)), max_nodes)
    assert graph == FlameGraph(names.split(), levels, total, max_self)


def test_no_data_is_a_root_alone() -> None:
    assert flame_graph(FlameTree(), 100) == FlameGraph(["total"], [[0, 0, 0, 0]], 0, 0)
    assert flame_graph_diff(FlameTree(), FlameTree(), 100) == FlameGraphDiff(["total"], [[0] * 7], 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("left", "right", "max_nodes", "names", "levels", "max_self"),
    [
        (
            "a;b 1, a;c 2",
            "a;b 4, a;c 8",
            0,
            "total a c b",
            [[0, 3, 0, 0, 12, 0, 0], [0, 3, 0, 0, 12, 0, 1], [0, 1, 1, 0, 4, 4, 3, 0, 2, 2, 0, 8, 8, 2]],
            8,
        ),
        (
            "a;b 1, a;c 2, a;e 3",
            "a;b 4, a;d 8, a;e 12",
            0,
            "total a e d c b",
            [
                [0, 6, 0, 0, 24, 0, 0],
                [0, 6, 0, 0, 24, 0, 1],
                [0, 1, 1, 0, 4, 4, 5, 0, 2, 2, 0, 0, 0, 4, 0, 0, 0, 0, 8, 8, 3, 0, 3, 3, 0, 12, 12, 2],
            ],
            12,
        ),
        (
            "a;b 1, a;c 2",
            "a;b 4, a;c 8",
            2,
            "total a other",
            [[0, 3, 0, 0, 12, 0, 0], [0, 3, 0, 0, 12, 0, 1], [0, 3, 3, 0, 12, 12, 2]],
            12,
        ),
        (
            EXAMPLE,
            EXAMPLE_RIGHT,
            0,
            "total main work render parse net idle gc",
            [
                [0, 100, 0, 0, 100, 0, 0],
                [0, 5, 5, 0, 5, 5, 7, 0, 95, 0, 0, 95, 0, 1],
                [5, 10, 10, 5, 0, 0, 6, 0, 0, 0, 0, 15, 15, 5, 0, 85, 5, 0, 80, 0, 2],
                [20, 30, 30, 20, 60, 60, 4, 0, 50, 50, 0, 20, 20, 3],
            ],
            60,
        ),
        (
            EXAMPLE,
            EXAMPLE_RIGHT,
            4,
            "total other main work parse",
            [
                [0, 100, 0, 0, 100, 0, 0],
                [0, 95, 0, 0, 95, 0, 2, 0, 5, 5, 0, 5, 5, 1],
                [0, 85, 5, 0, 80, 0, 3, 0, 10, 10, 0, 15, 15, 1],
                [5, 30, 30, 0, 60, 60, 4, 0, 50, 50, 0, 20, 20, 1],
            ],
            60,
        ),
    ],
)
def test_known_differences(
    left: str, right: str, max_nodes: int, names: str, levels: list[list[int]], max_self: int
) -> None:
    """Rows 43 to 45 of the sheet and its example 3."""
    graph = flame_graph_diff(tree_of(folded(left)), tree_of(folded(right)), max_nodes)
    totals = [sum(folded(side).values()) for side in (left, right)]
    assert graph == FlameGraphDiff(names.split(), levels, sum(totals), max_self, *totals)


def test_names_that_mean_the_root_elsewhere() -> None:
    """In a difference a function called total has a number of its own, and one without a name has that of the root."""
    tree = tree_of({(b"total",): 1, (b"",): 2, (b"\xff",): 4})
    assert flame_graph_diff(tree, tree).names == ["total", "\ufffd", "total"]
    assert flame_graph(tree).names == ["total", "\ufffd", ""]


def as_text(stacks: Stacks) -> dict[tuple[str, ...], int]:
    return {tuple(name.decode("utf-8", "replace") for name in stack): value for stack, value in stacks.items()}


def without_other(stacks: Stacks) -> Stacks:
    """What a flame graph shows of stacks when nothing is cut."""
    found: Stacks = {}
    for stack, value in stacks.items():
        end = (*stack[: stack.index(b"other")], b"other") if b"other" in stack else stack
        found[end] = found.get(end, 0) + value
    return found


@given(stack_sets)
def test_what_is_drawn_can_be_read_by_position_alone(stacks: Stacks) -> None:
    graph = flame_graph(tree_of(stacks))
    nodes = read_levels(graph.names, graph.levels)
    assert drawn_stacks(nodes) == as_text(without_other(stacks))
    assert graph.max_self == max(node.own for node in nodes)
    assert graph.total == sum(stacks.values()) == nodes[0].end


@given(stack_sets, counts)
def test_a_cut_graph_has_the_totals_of_the_whole(stacks: Stacks, count: int) -> None:
    graph = flame_graph(tree_of(stacks), count)
    totals = as_text(naive_totals(stacks))
    nodes = read_levels(graph.names, graph.levels)
    assert sum(node.own for node in nodes) == sum(stacks.values())
    for node in nodes:
        if "other" not in node.path:
            assert node.end - node.start == totals[node.path]


@given(stack_sets, counts)
def test_the_difference_of_equal_trees_is_none(stacks: Stacks, count: int) -> None:
    graph = flame_graph_diff(tree_of(stacks), tree_of(stacks), count)
    for level in graph.levels:
        for at in range(0, len(level), 7):
            assert level[at : at + 3] == level[at + 3 : at + 6]


@given(stack_sets, stack_sets, counts)
def test_each_side_of_a_difference_is_its_own_graph(left: Stacks, right: Stacks, count: int) -> None:
    graph = flame_graph_diff(tree_of(left), tree_of(right), count)
    swapped = flame_graph_diff(tree_of(right), tree_of(left), count)
    assert graph.names == swapped.names
    for level, other in zip(graph.levels, swapped.levels, strict=True):
        for at in range(0, len(level), 7):
            assert level[at : at + 7] == [*other[at + 3 : at + 6], *other[at : at + 3], other[at + 6]]
    for side, stacks in enumerate((left, right)):
        own = [level[at + 2 + 3 * side] for level in graph.levels for at in range(0, len(level), 7)]
        assert sum(own) == sum(stacks.values())
    assert (graph.left_total, graph.right_total) == (sum(left.values()), sum(right.values()))


def test_two_sides_that_add_up_to_too_much_are_refused() -> None:
    half = tree_of({(b"a",): 1 << 62})
    with pytest.raises(LimitExceeded):
        flame_graph_diff(half, half)


@pytest.mark.slow
def test_a_deep_tree_has_as_many_levels() -> None:
    graph = flame_graph(tree_of({(b"f",) * 20_000: 7}))
    assert len(graph.levels) == 20_001
    assert set(map(tuple, graph.levels[1:-1])) == {(0, 7, 0, 1)}
