"""Truncate a tree to its largest nodes; the rest of each parent is summed in one node ``other``.

Totals are those of the whole tree. All nodes as large as the smallest shown node are shown, so the result may have a
few more nodes than requested. There are two forms: a tree, which can be merged with others, and a flame graph.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from engine.query.flame.tree import FlameTree, Nodes, mark_below

OTHER = b"other"

Mask = NDArray[np.bool_]


def smallest_shown(totals: NDArray[np.int64], max_nodes: int) -> int:
    """Return the smallest total that is shown: the ``max_nodes``-th largest, 0 for all (also if max_nodes < 1)."""
    if max_nodes < 1 or len(totals) <= max_nodes:
        return 0
    place = len(totals) - max_nodes
    return int(np.partition(totals, place)[place])


def truncated(tree: FlameTree, max_nodes: int, other: Hashable = OTHER) -> FlameTree:
    """Return the tree with the children below the smallest shown total in a child ``other`` of their parent.

    An existing ``other`` absorbs them and keeps its own children that are large enough.
    """
    nodes = tree.nodes()
    minimum = smallest_shown(nodes.totals[1:], max_nodes)
    kept = nodes.totals >= minimum
    kept[0] = True
    for node in np.flatnonzero(_is_other(nodes, other) & ~kept).tolist():  # parents first
        kept[node] = kept[nodes.parents[node]]
    if kept.all():
        return tree
    gone = _folded(nodes, kept)
    places = np.cumsum(kept, dtype=np.int32) - 1
    old_parents = np.concatenate([nodes.parents[kept], nodes.parents[gone]])
    return FlameTree.of_nodes(
        [*nodes.names, other],
        np.where(old_parents < 0, -1, places[old_parents]),
        np.concatenate([nodes.name_refs[kept], np.full(len(gone), len(nodes.names), np.int32)]),
        np.concatenate([nodes.own[kept], nodes.totals[gone]]),
    )


def shown_nodes(tree: FlameTree, max_nodes: int) -> Nodes:
    """Return what a flame graph shows: children below the smallest shown total, and every child named ``other``, are
    one leaf ``other``, the last child of their parent."""
    nodes = tree.nodes()
    kept = nodes.totals >= smallest_shown(nodes.totals[1:], max_nodes)
    kept[0] = True
    is_other = _is_other(nodes, OTHER)
    for node in np.flatnonzero(is_other & kept).tolist():
        if kept[node]:
            mark_below(kept, nodes, node, False)
    gone = _folded(nodes, kept)
    parents, first = np.unique(nodes.parents[gone], return_index=True)
    sums = np.add.reduceat(nodes.totals[gone], first) if len(gone) else np.zeros(0, np.int64)
    return with_last_children(nodes, kept, parents, [(nodes.own, sums), (nodes.totals, sums)])[0]


def with_last_children(
    nodes: Nodes, kept: Mask, parents: NDArray[np.int32], columns: list[tuple[NDArray[np.int64], NDArray[np.int64]]]
) -> tuple[Nodes, list[NDArray[np.int64]]]:
    """Return the kept nodes, with one more leaf ``other`` as last child of each of ``parents``, level by level.

    ``columns`` are values of the nodes and those of the new leaves, own values and totals first; all are returned in
    the new order.
    """
    old = np.flatnonzero(kept)
    above = np.concatenate([nodes.parents[old], parents])
    is_new = np.arange(len(above)) >= len(old)
    # The old children of a parent come first, in order; parents are in breadth-first order already.
    order = np.lexsort((is_new, above))
    places = np.zeros(len(nodes.parents), np.int32)
    positions = np.empty(len(order), np.int32)
    positions[order] = np.arange(len(order), dtype=np.int32)
    places[old] = positions[: len(old)]
    new_parents = np.where(above < 0, -1, places[above])[order].astype(np.int32)
    refs = np.concatenate([nodes.name_refs[old], np.full(len(parents), len(nodes.names), np.int32)])[order]
    values = [np.concatenate([whole[old], added])[order] for whole, added in columns]
    counts = np.bincount(new_parents[1:], minlength=len(order))
    starts = np.concatenate([[1], 1 + np.cumsum(counts)]).astype(np.int32)
    names = [*nodes.names, OTHER]
    return Nodes(names, new_parents, refs, values[0], values[1], starts), values


def _is_other(nodes: Nodes, other: Hashable) -> Mask:
    ref = nodes.names.index(other) if other in nodes.names else len(nodes.names)
    return np.equal(nodes.name_refs, ref)


def _folded(nodes: Nodes, kept: Mask) -> NDArray[np.intp]:
    """Return the nodes that are not kept although their parents are."""
    gone = ~kept
    gone[0] = False
    return np.flatnonzero(gone & kept[nodes.parents])
