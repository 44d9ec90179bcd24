"""The callers and callees of one function, each a tree that starts with the function.

A stack with recursion counts once, from the outermost call on, so both trees have the function's total of the top
table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.core.errors import LimitExceeded
from engine.query.flame.tree import FlameTree, Nodes, mark_below, outermost_nodes

FRAMES_MAX = 20_000_000
"""Maximum frames above all calls of a function; every call costs its depth."""


class Sandwich(NamedTuple):
    """``callers`` holds the function's inverted stacks, ``callees`` its subtrees; both are empty if it is absent."""

    callers: FlameTree
    callees: FlameTree


def sandwich(tree: FlameTree, function: bytes, *, frames_max: int = FRAMES_MAX) -> Sandwich:
    """Return callers and callees. Raises LimitExceeded if there are more than ``frames_max`` frames above its calls."""
    nodes = tree.nodes()
    if function not in nodes.names:
        return Sandwich(FlameTree(), FlameTree())
    is_call = outermost_nodes(nodes) & (nodes.name_refs == nodes.names.index(function))
    calls = np.flatnonzero(is_call)
    return Sandwich(_callers(nodes, calls, frames_max), _callees(nodes, calls))


def _callees(nodes: Nodes, calls: NDArray[np.intp]) -> FlameTree:
    is_below = np.zeros(len(nodes.parents), np.bool_)
    for call in calls.tolist():
        mark_below(is_below, nodes, call, True)
    parents = nodes.parents.copy()
    parents[calls] = 0
    return FlameTree.of_nodes(nodes.names, parents, nodes.name_refs, np.where(is_below, nodes.own, 0))


def _callers(nodes: Nodes, calls: NDArray[np.intp], frames_max: int) -> FlameTree:
    """Walk up from all calls level by level; calls with equal frames so far share a node."""
    parents, refs = [np.array([-1])], [np.array([0])]
    own = [np.zeros(1, np.int64)]
    values, at = nodes.totals[calls], calls
    below = np.zeros(len(calls), np.int64)  # the new node that each call has reached
    count, seen = 1, 0
    while len(at):
        seen += len(at)
        if seen > frames_max:
            raise LimitExceeded("symbols", -1, f"the callers of a function have more than {frames_max} frames")
        keys = below * len(nodes.names) + nodes.name_refs[at]
        distinct, reached = np.unique(keys, return_inverse=True)
        parents.append(distinct // len(nodes.names))
        refs.append(distinct % len(nodes.names))
        above = nodes.parents[at]
        has_ended = above == 0
        ended = np.zeros(len(distinct), np.int64)
        np.add.at(ended, reached[has_ended], values[has_ended])
        own.append(ended)
        below, at, values = (reached + count)[~has_ended], above[~has_ended], values[~has_ended]
        count += len(distinct)
    return FlameTree.of_nodes(nodes.names, np.concatenate(parents), np.concatenate(refs), np.concatenate(own))
