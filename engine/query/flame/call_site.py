"""The part of a tree below one path of callers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.query.flame.tree import FlameTree, mark_below


def under_call_site(tree: FlameTree, path: Sequence[bytes]) -> FlameTree:
    """Return the stacks that begin with ``path``, the root first; an empty path is that of every stack."""
    nodes = tree.nodes()
    node = 0
    for name in path:
        children = range(int(nodes.child_starts[node]), int(nodes.child_starts[node + 1]))
        found = next((child for child in children if nodes.names[nodes.name_refs[child]] == name), None)
        if found is None:
            return FlameTree()
        node = found
    inside = np.zeros(len(nodes.parents), np.bool_)
    mark_below(inside, nodes, node, True)
    return FlameTree.of_nodes(nodes.names, nodes.parents, nodes.name_refs, np.where(inside, nodes.own, 0))
