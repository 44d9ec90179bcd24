"""The pure Python tree of merged stacks: the reference for the compiled one.

The rows of a dataset are first summed per node of its stack tree; then every referenced node is merged once, from the
roots on. No recursion: a stack may be as deep as there are nodes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.core.errors import BadReference, LimitExceeded
from engine.query.flame.nodes import NODE_NUMBERS_MAX, Int32s, Int64s, Nodes

VALUE_MAX = (1 << 63) - 1


class StackMerge:
    """Merges the rows of any number of datasets into one tree of at most ``nodes_max`` nodes besides the root."""

    def __init__(self, nodes_max: int = NODE_NUMBERS_MAX) -> None:
        self.total = 0
        self._nodes_max = min(nodes_max, NODE_NUMBERS_MAX)
        self._names: dict[Hashable, int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self._parents, self._name_refs, self._own = [-1], [-1], [0]

    @property
    def node_count(self) -> int:
        """Return the number of nodes, without the root."""
        return len(self._parents) - 1

    def add(
        self,
        names: Sequence[Hashable],
        parents: Int32s,
        locations: Int32s,
        frame_starts: Int32s,
        frames: Int32s,
        nodes: Int32s,
        values: Int64s,
    ) -> Int32s:
        """Add rows (a node of this stack tree, a value); see ``FlameTree.add_stacks`` for what the columns are.

        Returns the number that each node of the stack tree has in this merge, 0 for those that lead to no value;
        numbers are given in the order of the nodes. Raises BadReference or LimitExceeded, and then has added no value.
        """
        if len(values) != len(nodes) or len(locations) != len(parents) or not len(frame_starts):
            raise ValueError("columns of one table differ in length")
        sums = self._add_up(nodes.tolist(), values.tolist(), len(parents))
        above = parents.tolist()
        _check_parents(above)
        walked = _reached(above, sums)
        location_frames = _frames_of(locations, frame_starts, frames, len(names), above, walked)
        numbers = {
            frame: self._names.setdefault(names[frame], len(self._names))
            for frame in sorted({frame for own in location_frames.values() for frame in own})
        }
        places: dict[int, int] = {}
        for node in walked:
            place = 0
            if above[node] >= 0:
                place = places[above[node]]
                for frame in reversed(location_frames[int(locations[node])]):
                    place = self._child(place, numbers[frame])
            places[node] = place
        for node in walked:
            self._own[places[node]] += sums[node]
            self.total += sums[node]
        return np.array([places.get(node, 0) for node in range(len(above))], np.int32)

    def _add_up(self, nodes: list[int], values: list[int], count: int) -> list[int]:
        sums = [0] * count
        total = self.total
        for node, value in zip(nodes, values, strict=True):
            if not 0 <= node < count:
                raise BadReference("profiles", -1, f"stack {node} is not in a tree of {count} nodes")
            if value > 0:
                total += value
                if total > VALUE_MAX:
                    raise LimitExceeded("profiles", -1, "the values add up to more than 2^63 - 1")
                sums[node] += value
        return sums

    def _child(self, parent: int, name: int) -> int:
        known = self._children.get((parent, name))
        if known is None:
            known = len(self._parents)
            if known > self._nodes_max:
                raise LimitExceeded("symbols", -1, f"the merged tree has more than {self._nodes_max} nodes")
            self._children[parent, name] = known
            self._parents.append(parent)
            self._name_refs.append(name)
            self._own.append(0)
        return known

    def nodes(self) -> Nodes:
        """Return the tree so far."""
        parents, own = self._parents, self._own
        totals = list(own)
        for node in range(len(parents) - 1, 0, -1):
            totals[parents[node]] += totals[node]
        filled = [node for node in range(1, len(parents)) if totals[node]]
        every_name: list[Any] = list(self._names)
        used = sorted({self._name_refs[node] for node in filled}, key=every_name.__getitem__)
        ranks = {name: rank for rank, name in enumerate(used)}
        children: dict[int, list[int]] = {}
        for node in filled:
            children.setdefault(parents[node], []).append(node)
        order, places, starts = [0], {0: 0}, []
        for node in order:  # grows during iteration: breadth-first
            starts.append(len(order))
            for child in sorted(children.get(node, ()), key=lambda child: ranks[self._name_refs[child]]):
                places[child] = len(order)
                order.append(child)
        return Nodes(
            names=[every_name[name] for name in used],
            parents=np.array([-1, *(places[parents[node]] for node in order[1:])], np.int32),
            name_refs=np.array([-1, *(ranks[self._name_refs[node]] for node in order[1:])], np.int32),
            own=np.array([own[node] for node in order], np.int64),
            totals=np.array([totals[node] for node in order], np.int64),
            child_starts=np.array([*starts, len(order)], np.int32),
        )


def outermost(parents: Int32s, name_refs: Int32s, child_starts: Int32s, name_count: int) -> NDArray[np.bool_]:
    """Return for every node (see ``Nodes``) whether no ancestor has its name; False for the root."""
    found = np.zeros(len(parents), np.bool_)
    open_names = [0] * name_count
    above, refs, starts = parents.tolist(), name_refs.tolist(), child_starts.tolist()
    following = list(starts)
    node = 0
    while node >= 0:
        if following[node] < starts[node + 1]:
            following[node] += 1
            node = following[node] - 1
            found[node] = not open_names[refs[node]]
            open_names[refs[node]] += 1
        else:
            if node:
                open_names[refs[node]] -= 1
            node = above[node]
    return found


def _check_parents(parents: list[int]) -> None:
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise BadReference("symbols", -1, f"node {node} of a stack tree has parent {parent}")


def _reached(parents: list[int], sums: list[int]) -> list[int]:
    """Return the nodes with a value in their subtree, ascending: parents first."""
    reached = [value > 0 for value in sums]
    for node in range(len(parents) - 1, -1, -1):
        if reached[node] and parents[node] >= 0:
            reached[parents[node]] = True
    return [node for node, is_reached in enumerate(reached) if is_reached]


def _frames_of(
    locations: Int32s, frame_starts: Int32s, frames: Int32s, name_count: int, parents: list[int], walked: list[int]
) -> dict[int, list[int]]:
    """Return the frames of every location that the nodes have; a root has none."""
    found: dict[int, list[int]] = {}
    for node in walked:
        location = int(locations[node])
        if parents[node] < 0 or location in found:
            continue
        if not 0 <= location < len(frame_starts) - 1:
            raise BadReference("symbols", -1, f"a stack tree names location {location} of {len(frame_starts) - 1}")
        start, end = int(frame_starts[location]), int(frame_starts[location + 1])
        if not 0 <= start <= end <= len(frames):
            raise BadReference("symbols", -1, f"location {location} has the frames {start} to {end} of {len(frames)}")
        found[location] = frames[start:end].tolist()
        for frame in found[location]:
            if not 0 <= frame < name_count:
                raise BadReference("symbols", -1, f"location {location} has name {frame} of {name_count}")
    return found
