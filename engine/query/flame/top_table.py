"""The table of functions with own and total values."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.query.flame.tree import FlameTree, align, outermost_nodes


class FunctionTotals(NamedTuple):
    """A function's own and total value; recursion counts once per stack."""

    name: str
    own: int
    total: int


class FunctionDifference(NamedTuple):
    """A function's values on both sides of a comparison."""

    name: str
    left_own: int
    left_total: int
    right_own: int
    right_total: int


def top_table(tree: FlameTree) -> list[FunctionTotals]:
    """Return every function of a tree, sorted by own value and total (largest first), then name."""
    nodes = tree.nodes()
    is_outermost = outermost_nodes(nodes)
    own, total = np.zeros(len(nodes.names), np.int64), np.zeros(len(nodes.names), np.int64)
    np.add.at(own, nodes.name_refs[1:], nodes.own[1:])
    np.add.at(total, nodes.name_refs[is_outermost], nodes.totals[is_outermost])
    names = [name.decode("utf-8", "replace") for name in nodes.names]
    rows = map(FunctionTotals, names, own.tolist(), total.tolist())
    return sorted(rows, key=lambda row: (-row.own, -row.total, row.name))


def top_table_diff(left: FlameTree, right: FlameTree) -> list[FunctionDifference]:
    """Return every function of either tree, largest difference of own values first, then by total and name.

    Raises LimitExceeded if both trees together have 2^63 or more.
    """
    aligned = align(left, right)
    nodes = aligned.nodes
    is_outermost = outermost_nodes(nodes)
    columns: list[list[int]] = []
    for own, totals in ((aligned.left_own, aligned.left_totals), (aligned.right_own, aligned.right_totals)):
        sums = np.zeros((2, len(nodes.names)), np.int64)
        np.add.at(sums[0], nodes.name_refs[1:], own[1:])
        np.add.at(sums[1], nodes.name_refs[is_outermost], totals[is_outermost])
        columns += sums.tolist()
    names = [name.decode("utf-8", "replace") for name in nodes.names]
    rows = map(FunctionDifference, names, *columns)
    return sorted(
        rows,
        key=lambda row: (-abs(row.right_own - row.left_own), -abs(row.right_total - row.left_total), row.name),
    )
