"""A tree of merged stacks as columns: the result of both implementations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

NODE_NUMBERS_MAX = (1 << 31) - 1
"""Maximum node number in these columns."""


class Nodes(NamedTuple):
    """A tree as columns in breadth-first order; the children of a node are adjacent, sorted by name.

    Node 0 is the root, with parent and name -1. ``names`` holds the distinct names, sorted; ``name_refs`` are positions
    in it. The children of node i are the nodes from ``child_starts[i]`` to ``child_starts[i + 1]`` (exclusive). ``own``
    is the value of stacks that end in a node, ``totals`` includes its descendants.
    """

    names: list[Any]
    parents: Int32s
    name_refs: Int32s
    own: Int64s
    totals: Int64s
    child_starts: Int32s
