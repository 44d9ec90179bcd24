"""Flame graphs in the viewers' format: levels of nodes as integers, with a separate list of names.

Single graphs have four integers per node (distance from the previous node, total, own value, name), differences seven
(the first three for each side, then the name). A node's children start right of its own value. Names are numbered in
depth-first order, last child first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine.query.flame.tree import AlignedNodes, FlameTree, Nodes, align
from engine.query.flame.truncation import shown_nodes, smallest_shown, with_last_children

ROOT_NAME = "total"


class FlameGraph(NamedTuple):
    """One rendered tree: values in the unit of its samples. ``max_self`` is the largest own value of a shown node."""

    names: list[str]
    levels: list[list[int]]
    total: int
    max_self: int


class FlameGraphDiff(NamedTuple):
    """Two rendered trees; ``total`` is the sum of both sides' totals."""

    names: list[str]
    levels: list[list[int]]
    total: int
    max_self: int
    left_total: int
    right_total: int


def flame_graph(tree: FlameTree, max_nodes: int = 0) -> FlameGraph:
    """Render a tree of function names with about ``max_nodes`` nodes (below 1: all); totals are of the whole tree."""
    nodes = shown_nodes(tree, max_nodes)
    names, refs = _numbered(nodes, ROOT_NAME.encode())
    totals, own = nodes.totals.tolist(), nodes.own.tolist()
    levels = _levels(nodes, [(totals, own)], refs)
    return FlameGraph(names, levels, total=totals[0], max_self=max(own))


def flame_graph_diff(left: FlameTree, right: FlameTree, max_nodes: int = 0) -> FlameGraphDiff:
    """Render the difference of two trees, truncated to about ``max_nodes`` nodes (below 1: all).

    A node stays if either side is large enough. Raises LimitExceeded if both together have 2^63 or more.
    """
    shown = shown_difference(left, right, max_nodes)
    left_own, left_totals, right_own, right_totals = (column.tolist() for column in shown[1:])
    names, refs = _numbered(shown.nodes, b"")
    levels = _levels(shown.nodes, [(left_totals, left_own), (right_totals, right_own)], refs)
    return FlameGraphDiff(
        names,
        levels,
        total=left_totals[0] + right_totals[0],
        max_self=max(max(left_own), max(right_own)),
        left_total=left_totals[0],
        right_total=right_totals[0],
    )


def shown_difference(left: FlameTree, right: FlameTree, max_nodes: int = 0) -> AlignedNodes:
    """Align two trees and truncate them to about ``max_nodes`` nodes (below 1: all).

    A node stays if either side is large enough; what goes is in one leaf ``other``, the last child of its parent.
    Raises LimitExceeded if both together have 2^63 or more.
    """
    aligned = align(left, right)
    nodes = aligned.nodes
    largest = np.maximum(aligned.left_totals, aligned.right_totals)
    kept = largest >= smallest_shown(largest, max_nodes)
    gone = np.flatnonzero(~kept)
    gone = gone[kept[nodes.parents[gone]]]
    parents, first = np.unique(nodes.parents[gone], return_index=True)
    sides = []
    for totals in (aligned.left_totals, aligned.right_totals):
        sides.append(np.add.reduceat(totals[gone], first) if len(gone) else np.zeros(0, np.int64))
    columns = [
        (aligned.left_own, sides[0]),
        (aligned.left_totals, sides[0]),
        (aligned.right_own, sides[1]),
        (aligned.right_totals, sides[1]),
    ]
    shown, values = with_last_children(nodes, kept, parents, columns)
    return AlignedNodes(shown, *values)


def _numbered(nodes: Nodes, root_name: bytes) -> tuple[list[str], list[int]]:
    """Return the names shown, the root's first, and each node's number; that of ``root_name`` is 0 in any place."""
    numbers: dict[bytes, int] = {root_name: 0}
    name_refs, starts = nodes.name_refs.tolist(), nodes.child_starts.tolist()
    refs = [0] * len(name_refs)
    waiting = list(range(starts[0], starts[1]))
    while waiting:
        node = waiting.pop()
        refs[node] = numbers.setdefault(nodes.names[name_refs[node]], len(numbers))
        waiting.extend(range(starts[node], starts[node + 1]))
    texts = [name.decode("utf-8", "replace") for name in numbers]
    return [ROOT_NAME, *texts[1:]], refs


def _levels(nodes: Nodes, sides: Sequence[tuple[list[int], list[int]]], refs: list[int]) -> list[list[int]]:
    """Write the levels; ``sides`` are the (totals, own values) of each side, ``refs`` the numbers of names."""
    parents = nodes.parents.tolist()
    depths = [0] * len(parents)
    free = [[0] * len(parents) for _ in sides]  # per node: the offset of its next child
    ends = [0] * len(sides)
    levels: list[list[int]] = []
    for node, parent in enumerate(parents):
        depths[node] = depths[parent] + 1 if node else 0
        if depths[node] == len(levels):
            levels.append([])
            ends = [0] * len(sides)
        level = levels[-1]
        for side, (totals, own) in enumerate(sides):
            start = free[side][parent] if node else 0
            level += (start - ends[side], totals[node], own[node])
            ends[side] = start + totals[node]
            free[side][node] = start + own[node]
            if node:
                free[side][parent] = ends[side]
        level.append(refs[node])
    return levels
