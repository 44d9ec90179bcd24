"""Trees as dictionaries of stacks, and back: the naive form that tests compare with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st

from engine.query.flame.tree import FlameTree

Stack = tuple[bytes, ...]
Stacks = dict[Stack, int]

names = st.sampled_from([b"a", b"b", b"c", b"other", b"total", b"", b"\xff", b"ab", "ä".encode()])
"""Few of them, so that stacks share frames; among them those that mean something to a writer."""
stacks = st.lists(names, max_size=5).map(tuple)
values = st.integers(1, 1 << 40)
stack_sets: st.SearchStrategy[Stacks] = st.dictionaries(stacks, values, max_size=25)


def tree_of(stacks: Mapping[Stack, int]) -> FlameTree:
    """Return the tree of these stacks, given from the root on."""
    tree = FlameTree()
    for stack, value in stacks.items():
        tree.add_stack(stack, value)
    return tree


def folded(text: str) -> Stacks:
    """Read ``a;b 1, a;c 2``."""
    found: Counter[Stack] = Counter()
    for line in text.split(", "):
        stack, _, value = line.rpartition(" ")
        found[tuple(stack.encode().split(b";"))] += int(value)
    return dict(found)


def stacks_of(tree: FlameTree) -> Stacks:
    """Return the stacks that have an own value."""
    nodes = tree.nodes()
    paths: list[Stack] = [()]
    for parent, ref in zip(nodes.parents[1:].tolist(), nodes.name_refs[1:].tolist(), strict=True):
        paths.append((*paths[parent], nodes.names[ref]))
    return {path: own for path, own in zip(paths, nodes.own.tolist(), strict=True) if own}


def totals_of(tree: FlameTree) -> Stacks:
    """Return the total of every node by its path."""
    nodes = tree.nodes()
    paths: list[Stack] = [()]
    for parent, ref in zip(nodes.parents[1:].tolist(), nodes.name_refs[1:].tolist(), strict=True):
        paths.append((*paths[parent], nodes.names[ref]))
    return dict(zip(paths, nodes.totals.tolist(), strict=True))


def naive_totals(stacks: Stacks) -> Stacks:
    """Return the total of every path of a dictionary of stacks."""
    found: Counter[Stack] = Counter({(): 0})
    for stack, value in stacks.items():
        for depth in range(len(stack) + 1):
            found[stack[:depth]] += value
    return dict(found)


class DrawnNode(NamedTuple):
    """A node of a flame graph: where it is on a side, and its names from the root on."""

    path: tuple[str, ...]
    start: int
    end: int
    own: int


def read_levels(
    names: Sequence[str], levels: Sequence[Sequence[int]], *, width: int = 4, side: int = 0
) -> list[DrawnNode]:
    """Read one side of levels by position alone: a node hangs under the one of the level before that spans it."""
    above: list[DrawnNode] = []
    found: list[DrawnNode] = []
    for depth, level in enumerate(levels):
        assert len(level) % width == 0
        end = 0
        row: list[DrawnNode] = []
        for at in range(0, len(level), width):
            step, total, own = level[at + 3 * side : at + 3 * side + 3]
            start = end + step
            end = start + total
            path: tuple[str, ...] = ()
            if depth:
                parents = [one for one in above if one.start <= start and end <= one.end]
                path = (*parents[0].path, names[level[at + width - 1]])
            row.append(DrawnNode(path, start, end, own))
        found += row
        above = row
    return found


def drawn_stacks(nodes: Sequence[DrawnNode]) -> dict[tuple[str, ...], int]:
    """Return the stacks that are drawn, by their own values."""
    found: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        found[node.path] += node.own
    return {path: own for path, own in found.items() if own}
