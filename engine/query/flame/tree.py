"""The tree of merged stacks of any number of datasets.

Selects one of two implementations: the compiled one if it is built, unless ``LITHIFY_PURE=1``; otherwise the pure
Python reference. Rows cost nanoseconds each: they are first summed per node of their dataset's stack tree, and each
referenced node is merged once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.core.errors import LimitExceeded
from engine.core.kernels import load_kernel
from engine.query.flame.nodes import Int32s, Int64s, Nodes
from engine.query.flame.stack_table import StackTable

if TYPE_CHECKING:
    from engine.query.flame._flame_tree_py import StackMerge, outermost
else:
    StackMerge, outermost = load_kernel("engine.query.flame._flame_tree", "StackMerge", "outermost")

__all__ = [
    "NODES_MAX",
    "AlignedNodes",
    "FlameTree",
    "Nodes",
    "align",
    "mark_below",
    "outermost_nodes",
]

NODES_MAX = 20_000_000
"""Default maximum of nodes; each takes about 50 bytes."""


class FlameTree:
    """A tree of frames with the values of stacks; stacks with equal callers share nodes.

    A frame has a name: bytes for flame graphs, otherwise any hashable, sortable value. Recursion creates nested nodes.
    The virtual root has no name; the value of the empty stack is the root's own value.

    Only one thread at a time may add to a tree, because ``add_*`` release the GIL.
    """

    def __init__(self, *, nodes_max: int = NODES_MAX) -> None:
        self._nodes_max = nodes_max
        self._merge = StackMerge(nodes_max)
        self._nodes: Nodes | None = None

    @property
    def total(self) -> int:
        """Return the sum of all values added so far; below 2^63."""
        return int(self._merge.total)

    @property
    def node_count(self) -> int:
        """Return the number of allocated nodes, including nodes without a value in their subtree."""
        return int(self._merge.node_count)

    def __len__(self) -> int:
        """Return the number of nodes with a value in their subtree, without the root."""
        return len(self.nodes().parents) - 1

    def __eq__(self, other: object) -> bool:
        """Return whether both trees have the same stacks with the same values."""
        if not isinstance(other, FlameTree):
            return NotImplemented
        left, right = self.nodes(), other.nodes()
        columns = ((left.parents, right.parents), (left.name_refs, right.name_refs), (left.own, right.own))
        return left.names == right.names and all(np.array_equal(own, others) for own, others in columns)

    __hash__ = None  # type: ignore[assignment]

    def add_stacks(self, stacks: StackTable, nodes: ArrayLike, values: ArrayLike) -> None:
        """Add one dataset's rows: the stack that ends in ``nodes[i]`` has ``values[i]``.

        Nodes are those of ``stacks`` (``StackTable.nodes_of`` gives them for stored stack ids) and may repeat; values
        that are not positive are skipped. Raises BadReference if a node, parent, location or frame does not exist or a
        parent does not precede its child (so there are no cycles), LimitExceeded if the values sum to 2^63 or the tree
        gets too many nodes, ValueError if columns of one table differ in length. A call that raises adds nothing.
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
        """Add another tree. Raises as ``add_stacks``."""
        nodes = other.nodes()
        self.add_nodes(nodes.names, nodes.parents, nodes.name_refs, nodes.own)

    def add_nodes(self, names: Sequence[Hashable], parents: ArrayLike, name_refs: ArrayLike, own: ArrayLike) -> None:
        """Add a tree given as columns: node i has the name ``names[name_refs[i]]`` and the own value ``own[i]``.

        A root (parent -1) has no name. Raises as ``add_stacks``.
        """
        _merge_nodes(self._merge, names, parents, name_refs, own)
        self._nodes = None

    def add_stack(self, stack: Iterable[Hashable], value: int) -> None:
        """Add one stack, given by its names, root first. Raises as ``add_stacks``."""
        names = list(stack)
        parents = np.arange(-1, len(names), dtype=np.int32)
        own = np.zeros(len(names) + 1, np.int64)
        own[-1] = _column([value], np.int64)[0]
        self.add_nodes(names, parents, np.maximum(parents, 0), own)

    def nodes(self) -> Nodes:
        """Return the tree as columns. Callers must not modify them; later additions do not change them."""
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
    """Return for every node whether no ancestor has its name, so that recursion counts once."""
    found: NDArray[np.bool_] = outermost(nodes.parents, nodes.name_refs, nodes.child_starts, len(nodes.names))
    return found


def mark_below(mask: NDArray[np.bool_], nodes: Nodes, node: int, value: bool) -> None:
    """Set the mask of a node and its descendants."""
    start, end = node, node + 1
    while start < end:  # children of adjacent nodes are adjacent
        mask[start:end] = value
        start, end = int(nodes.child_starts[start]), int(nodes.child_starts[end])


class AlignedNodes(NamedTuple):
    """The union of two trees: every node of either, with its values on each side, 0 if a side lacks it."""

    nodes: Nodes
    left_own: Int64s
    left_totals: Int64s
    right_own: Int64s
    right_totals: Int64s


def align(left: FlameTree, right: FlameTree) -> AlignedNodes:
    """Return the union of two trees. Raises LimitExceeded if their sum reaches 2^63 or has too many nodes."""
    union = FlameTree()
    union.add_tree(left)
    union.add_tree(right)
    nodes = union.nodes()
    # A merge that starts with a whole tree numbers its nodes as that tree does.
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
    """Add a tree whose nodes have one name each."""
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
    """Return values as a contiguous integer column of type ``kind``. Raises LimitExceeded if a value does not fit."""
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
