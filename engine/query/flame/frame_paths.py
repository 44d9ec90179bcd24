"""64-bit ids of nodes in a tree, computed from the path of function names up to the root.

An id depends on the names only, so it identifies the same path in other trees and processes; links to a part of a flame
graph contain it. Collisions are as likely as between random 64-bit numbers unless siblings' names have one CRC-32.
"""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from engine.query.flame.tree import FlameTree, Nodes, mark_below

ROOT_ID = 0xCBF29CE484222325
FACTOR = 0x100000001B3

Ids = NDArray[np.uint64]


def path_ids(nodes: Nodes) -> Ids:
    """Return the id of every node of a tree of function names: ``id(parent) * FACTOR + crc32(name)`` modulo 2^64.

    Invalid UTF-8 in names is replaced first.
    """
    sums = np.array([_sum(name) for name in nodes.names], np.uint64)
    ids = np.full(len(nodes.parents), ROOT_ID, np.uint64)
    first, end = 1, int(nodes.child_starts[1]) if len(nodes.parents) > 1 else 1
    while first < end:  # breadth-first
        ids[first:end] = ids[nodes.parents[first:end]] * np.uint64(FACTOR) + sums[nodes.name_refs[first:end]]
        first, end = int(nodes.child_starts[first]), int(nodes.child_starts[end])
    return ids


def path_to(nodes: Nodes, path_id: int) -> list[int]:
    """Return the nodes on the path to an id, without the root; empty if it does not exist or is the root."""
    if not 0 <= path_id < 1 << 64:
        return []
    found = np.flatnonzero(path_ids(nodes) == np.uint64(path_id))
    node = int(found[0]) if len(found) else 0
    path = []
    while node:
        path.append(node)
        node = int(nodes.parents[node])
    return path[::-1]


def subtree(tree: FlameTree, node: int) -> FlameTree:
    """Return the tree whose root has this node as its only child, with all that lies below it; 0 is the tree itself."""
    if not node:
        return tree
    nodes = tree.nodes()
    inside = np.zeros(len(nodes.parents), np.bool_)
    mark_below(inside, nodes, node, True)
    parents = nodes.parents.copy()
    parents[node] = 0
    return FlameTree.of_nodes(nodes.names, parents, nodes.name_refs, np.where(inside, nodes.own, 0))


def _sum(name: bytes) -> int:
    return zlib.crc32(name.decode("utf-8", "replace").encode())
