"""The stacks of one symbol partition as columns: the input of a ``FlameTree``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

from engine.core.errors import BadReference
from engine.formats.profile_block.model import Location, SymbolPartition

Int32s = NDArray[np.int32]

UNKNOWN_BINARY = b"unknown"


@dataclass(frozen=True, slots=True, eq=False)
class StackTable:
    """Stack trees whose nodes are locations, and the frames of those locations.

    A stack is a node; following ``parents`` from it leads to a root, whose parent is -1. A root has no frame, and
    parents come before their children. Node n has location ``locations[n]`` (that of a root means nothing). Location l
    has the frames ``frames[frame_starts[l]:frame_starts[l + 1]]``, innermost first: several where calls were inlined,
    none if it says nothing. A frame is a position in ``names``. Whatever can be hashed and sorted may be a name: the
    bytes of function names for flame graphs.

    ``first_nodes`` has the first node of every tree, ``tree_size`` how many stack ids belong to one (0: to the only).
    """

    names: Sequence[Hashable]
    parents: Int32s
    locations: Int32s
    frame_starts: Int32s
    frames: Int32s
    first_nodes: tuple[int, ...] = (0,)
    tree_size: int = 0

    def nodes_of(self, stack_ids: ArrayLike) -> Int32s:
        """Return the nodes of stack ids (tree * size + node). Raises BadReference if an id does not exist."""
        ids = np.asarray(stack_ids)
        if ids.size and ids.dtype.kind not in "iu":
            raise TypeError(f"stack ids of type {ids.dtype}")
        unsigned = ids.astype(np.uint64, copy=False)  # negative ids become larger than any valid id
        count = len(self.parents)
        if self.tree_size and len(self.first_nodes) > 1:
            trees, nodes = np.divmod(unsigned, np.uint64(self.tree_size))
            limits = np.diff(np.array([*self.first_nodes, count], np.uint64))
            known = trees < len(limits)
            bad = ~known | (nodes >= limits[np.where(known, trees, 0)])
        else:
            trees, nodes = None, unsigned
            bad = unsigned >= count
        if bad.any():
            raise BadReference("profiles", -1, f"stack {ids[bad.argmax()]} is not in the partition's stack trees")
        if trees is None:
            return nodes.astype(np.int32)
        return nodes.astype(np.int32) + np.array(self.first_nodes, np.int32)[trees]


def stack_table(partition: SymbolPartition) -> StackTable:
    """Return the stacks of a decoded partition, with function names as frames.

    A location without lines (or whose lines mean nothing, because the partition has no functions) has one frame that
    names its address: ``<binary>!0x<hex>``, the binary being the last part of its mapping's file name, or ``unknown``.
    """
    names: list[bytes] = list(partition.strings)
    made: dict[bytes, int] = {}
    frames: list[list[int]] = []
    for location in partition.locations:
        if location.lines and partition.functions:
            frames.append([partition.functions[function].name for function, _ in location.lines])
        else:
            name = _address_name(partition, location)
            frames.append([made.setdefault(name, len(names) + len(made))])
    return location_stacks(partition, [*names, *made], frames)


def location_stacks(
    partition: SymbolPartition, names: Sequence[Hashable], frames: Sequence[Sequence[int]]
) -> StackTable:
    """Return the stacks of a partition whose locations have the given frames (positions in ``names``)."""
    first_nodes: list[int] = []
    parents: list[int] = []
    locations: list[int] = []
    for tree in partition.trees:
        first = len(parents)
        first_nodes.append(first)
        parents += [parent + first if parent >= 0 else -1 for parent in tree.parents]
        locations += [
            location if parent >= 0 else 0 for parent, location in zip(tree.parents, tree.locations, strict=True)
        ]
    return StackTable(
        names=names,
        parents=np.array(parents, np.int32),
        locations=np.array(locations, np.int32),
        frame_starts=np.cumsum([0, *map(len, frames)], dtype=np.int32),
        frames=np.fromiter(chain.from_iterable(frames), np.int32),
        first_nodes=tuple(first_nodes),
        tree_size=partition.trees[0].max_nodes if partition.trees else 0,
    )


def _address_name(partition: SymbolPartition, location: Location) -> bytes:
    binary = b""
    if location.mapping < len(partition.mappings):
        binary = partition.strings[partition.mappings[location.mapping].filename].rpartition(b"/")[2]
    return (binary or UNKNOWN_BINARY) + b"!0x%x" % location.address
