"""Encode a tree as bytes, the form that a front end merges with others.

Nodes are in depth-first order, last child first; each has the length of its name, its name, its own value and its
number of children, all numbers unsigned LEB128. The first is the root, without a name. An empty tree has no bytes.
"""

from __future__ import annotations

from engine.query.flame.tree import FlameTree


def encode_tree(tree: FlameTree) -> bytes:
    """Return the bytes of a tree of function names; use ``truncated`` first to bound the size."""
    nodes = tree.nodes()
    if not nodes.totals[0]:
        return b""
    labels = [_uvarint(len(name)) + name for name in nodes.names]
    refs, own, starts = nodes.name_refs.tolist(), nodes.own.tolist(), nodes.child_starts.tolist()
    out = bytearray()
    waiting = [0]
    while waiting:
        node = waiting.pop()
        first, end = starts[node], starts[node + 1]
        out += (labels[refs[node]] if node else b"\0") + _uvarint(own[node]) + _uvarint(end - first)
        waiting.extend(range(first, end))
    return bytes(out)


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
