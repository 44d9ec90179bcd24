"""The tree of merged stacks: rows of any number of datasets in, (name, own value, total) nodes out.

The door to two implementations: the plain twin defines what a tree is, the compiled one is used when it is built,
unless ``LITHIFY_PURE=1``. Rows cost nanoseconds each, because they are first added up per node of their dataset's own
stack tree; only what they reach of that tree is then walked, once.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.core.errors import LimitExceeded
from engine.query.flame.nodes import Int32s, Int64s, Nodes
from engine.query.flame.stack_table import StackTable

IMPLEMENTATION = "python"

if TYPE_CHECKING or os.environ.get("LITHIFY_PURE") == "1":
    from engine.query.flame._flame_tree_py import StackMerge, outermost
else:
    try:
        from engine.query.flame._flame_tree import StackMerge, outermost

        IMPLEMENTATION = "compiled"
    except ImportError:
        from engine.query.flame._flame_tree_py import StackMerge, outermost

__all__ = [
    "IMPLEMENTATION",
    "NODES_MAX",
    "AlignedNodes",
    "FlameTree",
    "Nodes",
    "align",
    "mark_below",
    "outermost_nodes",
]

NODES_MAX = 20_000_000
"""Nodes a tree may have unless the caller says otherwise: it needs about 50 bytes for each."""


class FlameTree:
    """A tree of frames: where the values of stacks went, with everything called from the same callers in one node.

    A frame bears a name: bytes for flame graphs, and any hashable, sortable thing otherwise. Recursion makes nested
    nodes, it is not folded. The virtual root bears no name; what has an empty stack is the root's own value.

    One thread at a time may add to a tree: adding lets others run meanwhile.
    """

    def __init__(self, *, nodes_max: int = NODES_MAX) -> None:
        self._nodes_max = nodes_max
        self._merge = StackMerge(nodes_max)
        self._nodes: Nodes | None = None

    @property
    def total(self) -> int:
        """The sum of all values added so far; below 2^63."""
        return int(self._merge.total)

    @property
    def node_count(self) -> int:
        """What the tree takes memory for: its nodes, also those that nothing with a value leads to."""
        return int(self._merge.node_count)

    def __len__(self) -> int:
        """The number of nodes that have a value in them or below them, the root not counted."""
        return len(self.nodes().parents) - 1

    def __eq__(self, other: object) -> bool:
        """Equal trees have the same stacks with the same values, whatever they were merged from."""
        if not isinstance(other, FlameTree):
            return NotImplemented
        left, right = self.nodes(), other.nodes()
        columns = ((left.parents, right.parents), (left.name_refs, right.name_refs), (left.own, right.own))
        return left.names == right.names and all(np.array_equal(own, others) for own, others in columns)

    __hash__ = None  # type: ignore[assignment]

    def add_stacks(self, stacks: StackTable, nodes: ArrayLike, values: ArrayLike) -> None:
        """Add one dataset's rows: the stack that ends in ``nodes[i]`` has ``values[i]``.

        Nodes are those of ``stacks`` (``StackTable.nodes_of`` gives them for stored stack ids) and may repeat; values
        that are not positive are skipped. Raises BadReference if a node, parent, location or frame is not there, or a
        parent does not come before its child (so there are no cycles); LimitExceeded if the values add up to 2^63 or
        the tree gets too many nodes; ValueError if columns of one table differ in length. A call that raises has added
        nothing.
        """
        self._merge.add(
            stacks.names,
            _column(stacks.parents, np.int32),
            _column(stacks.locations, np.int32),
            _column(stacks.frame_starts, np.int32),
            _column(stacks.frames, np.int32),
            _column(nodes, np.int32),
            _column(values, np.int64),
        )
        self._nodes = None

    def add_tree(self, other: FlameTree) -> None:
        """Add everything that another tree has; raises as ``add_stacks`` does."""
        nodes = other.nodes()
        self.add_nodes(nodes.names, nodes.parents, nodes.name_refs, nodes.own)

    def add_nodes(self, names: Sequence[Hashable], parents: ArrayLike, name_refs: ArrayLike, own: ArrayLike) -> None:
        """Add a tree given as columns: node i bears ``names[name_refs[i]]`` and has ``own[i]`` besides its children.

        A root (parent -1) bears no name. Raises as ``add_stacks`` does.
        """
        _merge_nodes(self._merge, names, parents, name_refs, own)
        self._nodes = None

    def add_stack(self, stack: Iterable[Hashable], value: int) -> None:
        """Add one stack, given by its names from the root on; raises as ``add_stacks`` does."""
        names = list(stack)
        parents = np.arange(-1, len(names), dtype=np.int32)
        own = np.zeros(len(names) + 1, np.int64)
        own[-1] = _column([value], np.int64)[0]
        self.add_nodes(names, parents, np.maximum(parents, 0), own)

    def nodes(self) -> Nodes:
        """Return the tree as columns; what is returned must not be changed, and does not change."""
        if self._nodes is None:
            self._nodes = self._merge.nodes()
        return self._nodes

    @classmethod
    def of_nodes(cls, names: Sequence[Hashable], parents: ArrayLike, name_refs: ArrayLike, own: ArrayLike) -> FlameTree:
        """Return the tree that ``add_nodes`` makes of these columns."""
        tree = cls()
        tree.add_nodes(names, parents, name_refs, own)
        return tree


def outermost_nodes(nodes: Nodes) -> NDArray[np.bool_]:
    """Say of every node whether none above it bears its name: what recursion must not count twice."""
    found: NDArray[np.bool_] = outermost(nodes.parents, nodes.name_refs, nodes.child_starts, len(nodes.names))
    return found


def mark_below(mask: NDArray[np.bool_], nodes: Nodes, node: int, value: bool) -> None:
    """Set the mask of a node and of everything below it."""
    start, end = node, node + 1
    while start < end:  # of neighbours in a level the children are neighbours too
        mask[start:end] = value
        start, end = int(nodes.child_starts[start]), int(nodes.child_starts[end])


class AlignedNodes(NamedTuple):
    """Two trees in one: every node that either has, with what it has on each side; zeros where a side has it not."""

    nodes: Nodes
    left_own: Int64s
    left_totals: Int64s
    right_own: Int64s
    right_totals: Int64s


def align(left: FlameTree, right: FlameTree) -> AlignedNodes:
    """Lay two trees over each other; LimitExceeded if their sum has 2^63 or more, or too many nodes."""
    union = FlameTree()
    union.add_tree(left)
    union.add_tree(right)
    nodes = union.nodes()
    # A merge that takes in a whole tree first gives its nodes the places that they have in it.
    merge = StackMerge()
    _merge_nodes(merge, nodes.names, nodes.parents, nodes.name_refs, np.ones_like(nodes.own))
    sides: list[Int64s] = []
    for tree in (left, right):
        own = tree.nodes()
        places = _merge_nodes(merge, own.names, own.parents, own.name_refs, np.ones_like(own.own))
        for column in (own.own, own.totals):
            sides.append(np.zeros_like(nodes.own))
            sides[-1][places] = column
    return AlignedNodes(nodes, *sides)


def _merge_nodes(
    merge: StackMerge, names: Sequence[Hashable], parents: ArrayLike, name_refs: ArrayLike, own: ArrayLike
) -> Int32s:
    """Add a tree whose nodes bear one name each."""
    locations = _column(name_refs, np.int32)
    return merge.add(
        names,
        _column(parents, np.int32),
        locations,
        np.arange(len(names) + 1, dtype=np.int32),
        np.arange(len(names), dtype=np.int32),
        np.arange(len(locations), dtype=np.int32),
        _column(own, np.int64),
    )


def _column(values: ArrayLike, kind: type[Any]) -> NDArray[Any]:
    """Return values as a contiguous column of integers of a kind; LimitExceeded if one does not fit into it."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"a column of {given.ndim} dimensions")
    if given.dtype != kind and given.size:
        if not (given.dtype.kind in "iu" or (given.dtype == object and all(type(one) is int for one in given))):
            raise TypeError(f"a column of {given.dtype}; integers are wanted")
        limits = np.iinfo(kind)
        if given.min() < limits.min or given.max() > limits.max:
            raise LimitExceeded("profiles", -1, f"a number does not fit into {limits.bits} bits")
    return np.ascontiguousarray(given, dtype=kind)
