"""Sum the values under functions whose name contains a text, on the whole tree before truncation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.query.flame.nodes import Int64s
from engine.query.flame.tree import FlameTree, Nodes, align


class Matched(NamedTuple):
    """``functions`` contain the text in their name; ``totals`` is the value of the stacks through them, by tree."""

    functions: int
    totals: tuple[int, ...]


def fits_search(name: bytes, text: str) -> bool:
    """Return whether a name contains the text, ignoring case."""
    return text.lower() in name.decode("utf-8", "replace").lower()


def matched(trees: Sequence[FlameTree], text: str) -> Matched:
    """Return the matches in one tree or in two compared trees. A stack with several matches counts once."""
    if len(trees) == 1:
        nodes = trees[0].nodes()
        columns: list[Int64s] = [nodes.totals]
    else:
        left, right = trees
        aligned = align(left, right)
        nodes, columns = aligned.nodes, [aligned.left_totals, aligned.right_totals]
    fits = np.array([fits_search(name, text) for name in nodes.names], np.bool_)
    is_first = _outermost(nodes, fits)
    return Matched(int(fits.sum()), tuple(int(column[is_first].sum()) for column in columns))


def _outermost(nodes: Nodes, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for every node whether its name matches and no ancestor's does."""
    own = np.zeros(len(nodes.parents), np.bool_)
    own[1:] = fits[nodes.name_refs[1:]]
    is_below = np.zeros(len(nodes.parents), np.bool_)
    first, end = 1, int(nodes.child_starts[1]) if len(nodes.parents) > 1 else 1
    while first < end:
        parents = nodes.parents[first:end]
        is_below[first:end] = is_below[parents] | own[parents]
        first, end = int(nodes.child_starts[first]), int(nodes.child_starts[end])
    return own & ~is_below
