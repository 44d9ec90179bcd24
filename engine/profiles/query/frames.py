"""The stack trees of a partition as trees of functions: what flame graphs are made of.

A node of a stack tree is a location, which may stand for several functions (inlined ones) or for none that is known.
Here every node is one function: a location's lines become a chain, outermost first, and a location without lines is
shown as ``<binary>!0x<address>``.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from engine.profiles.errors import BadReference
from engine.profiles.model import Location, SymbolPartition

UNKNOWN_BINARY = b"unknown"
STRING_BYTES = 60
"""What a string takes in memory beside its own bytes."""


@dataclass(frozen=True, slots=True)
class FrameTree:
    """The functions of a partition's stacks. Node 0 is the root: parent -1, function 0, which is an empty string.

    Parents come before their children; ``functions`` are positions in ``strings``. ``leaves`` has the innermost node of
    every node of the stack trees, which lie back to back and begin at ``tree_starts``; a stack id is
    ``tree * max_nodes + node``.
    """

    strings: list[bytes]
    parents: npt.NDArray[np.int32]
    functions: npt.NDArray[np.int32]
    leaves: npt.NDArray[np.int32]
    tree_starts: npt.NDArray[np.int64]
    max_nodes: int

    @classmethod
    def of(cls, partition: SymbolPartition) -> FrameTree:
        """Return the functions of a decoded partition."""
        strings, lines, line_starts = _location_lines(partition)
        sizes = np.array([len(tree.parents) for tree in partition.trees], np.int64)
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
        parents = np.fromiter(chain.from_iterable(tree.parents for tree in partition.trees), np.int64, int(starts[-1]))
        places = np.fromiter(chain.from_iterable(tree.locations for tree in partition.trees), np.int64, int(starts[-1]))
        is_root = np.zeros(len(parents), np.bool_)
        is_root[starts[:-1]] = True
        owners = np.repeat(starts[:-1], sizes)
        places[is_root] = 0
        counts = np.where(is_root, 0, (line_starts[1:] - line_starts[:-1])[places] if len(lines) else 0)
        firsts = 1 + np.cumsum(counts) - counts  # node 0 is the root of all trees
        leaves = np.where(is_root, 0, firsts + counts - 1)
        node_of = np.repeat(np.arange(len(parents)), counts)
        depth = np.arange(1, 1 + len(node_of)) - firsts[node_of]  # 0: the outermost function of the node's location
        frame_parents = np.arange(len(node_of), dtype=np.int64)  # the frame before, except for the outermost
        outermost = depth == 0
        frame_parents[outermost] = leaves[(parents + owners)[node_of[outermost]]]
        frame_lines = line_starts[places[node_of] + 1] - 1 - depth  # lines are innermost first
        return cls(
            strings=strings,
            parents=np.concatenate((np.array([-1], np.int32), frame_parents.astype(np.int32))),
            functions=np.concatenate((np.zeros(1, np.int32), lines[frame_lines].astype(np.int32))),
            leaves=leaves.astype(np.int32),
            tree_starts=starts,
            max_nodes=max((tree.max_nodes for tree in partition.trees), default=0),
        )

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        arrays = self.parents.nbytes + self.functions.nbytes + self.leaves.nbytes + self.tree_starts.nbytes
        return arrays + sum(map(len, self.strings)) + STRING_BYTES * len(self.strings)

    def places(self, stack_ids: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the positions in ``leaves`` of stacks; BadReference if there is no such stack."""
        sizes = np.diff(self.tree_starts)
        if len(sizes) == 1 and (not len(stack_ids) or int(stack_ids.max()) < sizes[0]):
            return stack_ids.astype(np.int64)
        unit = np.uint64(self.max_nodes or (1 << 63))
        trees, nodes = (stack_ids // unit), (stack_ids % unit)
        bad = trees >= len(sizes)
        known = np.where(bad, 0, trees).astype(np.int64)
        bad |= nodes >= (sizes[known].astype(np.uint64) if len(sizes) else np.uint64(0))
        if bad.any():
            raise BadReference("profiles", -1, f"stack {stack_ids[bad][0]} is not in the partition's stack trees")
        return self.tree_starts[known] + nodes.astype(np.int64)


def _location_lines(partition: SymbolPartition) -> tuple[list[bytes], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return strings, the string of every line of every location, and where each location's lines start.

    Every location has a line; strings that are not in the partition are appended.
    """
    strings = list(partition.strings)
    lines: list[int] = []
    starts = [0]
    names = [function.name for function in partition.functions]
    made: dict[bytes, int] = {}
    for location in partition.locations:
        if location.lines and names:
            lines += [names[function] for function, _ in location.lines]
        else:
            name = _unresolved(partition, location)
            if name not in made:
                made[name] = len(strings)
                strings.append(name)
            lines.append(made[name])
        starts.append(len(lines))
    return strings, np.array(lines, np.int64), np.array(starts, np.int64)


def _unresolved(partition: SymbolPartition, location: Location) -> bytes:
    """Return what is shown of a location whose functions nobody knows."""
    binary = b""
    if location.mapping < len(partition.mappings):
        binary = posixpath.basename(partition.strings[partition.mappings[location.mapping].filename])
    return b"%s!0x%x" % (binary or UNKNOWN_BINARY, location.address)
