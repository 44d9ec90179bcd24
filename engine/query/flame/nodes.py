"""A tree of merged stacks as columns: what both implementations give and everything else reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]

NODE_NUMBERS_MAX = (1 << 31) - 1
"""The largest number a node can have in these columns."""


class Nodes(NamedTuple):
    """A tree as columns, a level after the other; the children of a node lie together, ascending by name.

    Node 0 is the root, with parent and name -1. ``names`` has every name that a node bears once, ascending, and
    ``name_refs`` are positions in it. The children of node i are the nodes ``child_starts[i]`` up to
    ``child_starts[i + 1]``. ``own`` is what ended in a node, ``totals`` that and what its children have.
    """

    names: list[Any]
    parents: Int32s
    name_refs: Int32s
    own: Int64s
    totals: Int64s
    child_starts: Int32s
