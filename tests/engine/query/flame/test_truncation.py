"""Truncation: the known answers of the wire sheet, and sums that stay what they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.query.flame.truncation import OTHER, shown_nodes, smallest_shown, truncated
from tests.engine.query.flame.stacks import Stack, Stacks, folded, naive_totals, stack_sets, stacks_of, tree_of

counts = st.integers(-1, 30)


@pytest.mark.parametrize(("max_nodes", "minimum"), [(2, 3), (1 << 40, 0), (0, 0), (-1, 0), (6, 0), (5, 1), (3, 2)])
def test_the_smallest_total_shown(max_nodes: int, minimum: int) -> None:
    """Row 39 of the sheet's known answers, and the edges beside it: the tree has six nodes."""
    tree = tree_of(folded("a;b;c 2, a;b;c1 1, a;b1;c 1"))
    assert smallest_shown(tree.nodes().totals[1:], max_nodes) == minimum


def test_a_cut_tree_is_that_of_the_reference() -> None:
    stacks = dict.fromkeys(
        folded("a;b;c1 1, a;b1;c 1, a;b1;c1 1, a1;b;c 1, a1;b;c1 1, a1;b1;c 1, a1;b1;c1 1"), 1
    ) | folded("a;b;c 2")
    assert stacks_of(truncated(tree_of(stacks), 3)) == folded("a;b;other 3, a;other 2, a1;other 4")


def test_an_other_that_is_there_takes_up_the_rest_and_keeps_its_children() -> None:
    tree = tree_of(folded("b;other;x 9, b;other 3, b;z 2, b;a 1"))
    assert stacks_of(truncated(tree, 3)) == folded("b;other;x 9, b;other 6")
    small = tree_of(folded("b;other;x 1, b;z 5, b;y 4, b;a 1"))
    assert stacks_of(truncated(small, 2)) == folded("b;other;other 1, b;z 5, b;other 5")


def test_nothing_is_cut_where_there_is_nothing_to_cut() -> None:
    tree = tree_of(folded("a;b 1, c 2"))
    assert all(truncated(tree, count) == tree for count in (0, -1, 3, 100))


@given(stack_sets, counts)
def test_the_tree_form_keeps_what_is_large_and_every_sum(stacks: Stacks, count: int) -> None:
    totals = naive_totals(stacks)
    expected = naive_truncation(stacks, naive_minimum(totals, count))
    assert stacks_of(truncated(tree_of(stacks), count)) == expected
    assert sum(expected.values()) == sum(stacks.values())


def naive_minimum(totals: Stacks, count: int) -> int:
    below = sorted((total for path, total in totals.items() if path), reverse=True)
    return 0 if count < 1 or len(below) <= count else below[count - 1]


def naive_truncation(stacks: Stacks, minimum: int) -> Stacks:
    """Send every stack down from the root until a frame is too small and not called other."""
    totals = naive_totals(stacks)
    found: dict[Stack, int] = {}
    for stack, value in stacks.items():
        end = stack
        for depth in range(1, len(stack) + 1):
            if totals[stack[:depth]] < minimum and stack[depth - 1] != OTHER:
                end = (*stack[: depth - 1], OTHER)
                break
        found[end] = found.get(end, 0) + value
    return found


@given(stack_sets, counts)
def test_a_flame_graph_shows_what_is_large_and_one_other_per_parent(stacks: Stacks, count: int) -> None:
    totals = naive_totals(stacks)
    minimum = naive_minimum(totals, count)
    shown: dict[Stack, int] = {}
    for stack, value in stacks.items():
        end = stack
        for depth in range(1, len(stack) + 1):
            if totals[stack[:depth]] < minimum or stack[depth - 1] == OTHER:
                end = (*stack[: depth - 1], OTHER)
                break
        shown[end] = shown.get(end, 0) + value
    nodes = shown_nodes(tree_of(stacks), count)
    paths: list[Stack] = [()]
    for node in range(1, len(nodes.parents)):
        parent = int(nodes.parents[node])
        assert nodes.child_starts[parent] <= node < nodes.child_starts[parent + 1]
        paths.append((*paths[parent], nodes.names[nodes.name_refs[node]]))
    assert len(set(paths)) == len(paths)
    assert {path: own for path, own in zip(paths, nodes.own.tolist(), strict=True) if own} == shown
    assert dict(zip(paths, nodes.totals.tolist(), strict=True)) == naive_totals(shown)
    # Children ascend by name, with other at the end; parents come in the order of their level.
    keys = [(parent, path[-1] == OTHER, path[-1]) for parent, path in zip(nodes.parents[1:], paths[1:], strict=True)]
    assert keys == sorted(keys)


@pytest.mark.slow
def test_a_deep_tree_below_an_other_is_dropped_whole() -> None:
    tree = tree_of({(b"a", OTHER) * 20_000: 3, (b"b",): 1})
    nodes = shown_nodes(tree, 0)
    assert nodes.totals.tolist() == [4, 3, 1, 3]
