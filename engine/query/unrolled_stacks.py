"""Unroll stacks to lists of frames, leaf first, for many stacks at once.

A stack may have as many frames as its tree has nodes, and rows repeat it. The size of a stack is computed before it is
unrolled, so that callers can bound the number of stacks per call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import LimitExceeded
from engine.formats.profile_block.model import SymbolPartition
from engine.query.flame.stack_table import StackTable, location_stacks, stack_table

_PLACE = (("function", pa.string()), ("file", pa.string()), ("line", pa.int64()))
STACK_FRAMES_MAX = 1 << 16
"""Maximum frames of a stack."""
STACK_BYTES_MAX = 16 << 20
"""Maximum bytes of the names of a stack."""
FRAME_BYTES = 8
"""Bytes of a frame without its name."""
PLACE = pa.struct([pa.field(name, kind, nullable=False) for name, kind in _PLACE])

Int64s = npt.NDArray[np.int64]


def place_table(partition: SymbolPartition) -> StackTable:
    """Return the stacks of a partition with (function, file, line) as frames; file "" and line 0 are unknown."""
    names = stack_table(partition)
    places: dict[tuple[bytes, bytes, int], int] = {}
    frames: list[list[int]] = []
    for number, location in enumerate(partition.locations):
        if location.lines and partition.functions:
            functions = [(partition.functions[ref], line) for ref, line in location.lines]
            own = [(partition.strings[one.name], partition.strings[one.filename], line) for one, line in functions]
        else:
            (only,) = names.frames[names.frame_starts[number] : names.frame_starts[number + 1]]
            own = [(cast(bytes, names.names[only]), b"", 0)]
        frames.append([places.setdefault(place, len(places)) for place in own])
    return location_stacks(partition, list(places), frames)


class UnrolledStacks:
    """The stacks of one table: their sizes, and their frames as Arrow lists.

    ``has_places``: the frames are those of ``place_table``.
    """

    def __init__(self, table: StackTable, *, has_places: bool = False) -> None:
        self._table = table
        self._has_places = has_places
        self._lengths = np.diff(table.frame_starts).astype(np.int64)
        self._names: pa.Array | None = None
        sizes = np.fromiter((_name_bytes(name) for name in table.names), np.int64, len(table.names)) + FRAME_BYTES
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes[table.frames])))
        by_location = sums[table.frame_starts[1:]] - sums[table.frame_starts[:-1]]
        self._depths = self._summed(self._lengths)
        self._bytes = self._summed(by_location)

    def bytes_of(self, nodes: npt.NDArray[np.int32]) -> Int64s:
        """Return the estimated unrolled bytes of each stack. Raises LimitExceeded for one that is too large."""
        if len(nodes) and (self._depths[nodes].max() > STACK_FRAMES_MAX or self._bytes[nodes].max() > STACK_BYTES_MAX):
            reason = f"a stack has more than {STACK_FRAMES_MAX} frames or {STACK_BYTES_MAX} bytes"
            raise LimitExceeded("symbols", -1, reason)
        return self._bytes[nodes]

    def lists(self, nodes: npt.NDArray[np.int32]) -> pa.ListArray:
        """Return the frames of each of these stacks, leaf first: names, or structs of type PLACE."""
        distinct, places = np.unique(nodes, return_inverse=True)
        frames, starts = self._frames(distinct)
        lists = pa.ListArray.from_arrays(pa.array(starts, pa.int32()), pa.array(frames)).take(pa.array(places))
        if self._names is None:
            self._names = _arrow_names(self._table.names, has_places=self._has_places)
        return pa.ListArray.from_arrays(lists.offsets, self._names.take(lists.values))

    def _frames(self, nodes: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Return the concatenated frames of the stacks, and the offsets of the stacks."""
        table = self._table
        starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._depths[nodes])))
        frames = np.empty(starts[-1], np.int32)
        places, left = starts[:-1].copy(), nodes
        while len(left):
            inner = table.parents[left] >= 0
            left, places = left[inner], places[inner]
            locations = table.locations[left]
            lengths = self._lengths[locations]
            for number in range(int(lengths.max(initial=0))):
                has = lengths > number
                frames[places[has] + number] = table.frames[table.frame_starts[locations[has]] + number]
            places = places + lengths
            left = table.parents[left]
        return frames, starts.astype(np.int32)

    def _summed(self, by_location: Int64s) -> Int64s:
        """Return for each node the sum over its stack, in O(log depth) steps."""
        table = self._table
        is_root = table.parents < 0
        own = np.zeros(len(table.parents), np.int64)
        own[~is_root] = by_location[table.locations[~is_root]]
        ahead = np.where(is_root, np.arange(len(own)), table.parents)
        while not is_root[ahead].all():
            own = own + own[ahead]
            ahead = ahead[ahead]
        return own


def _name_bytes(name: object) -> int:
    if isinstance(name, tuple):
        return len(name[0]) + len(name[1]) + FRAME_BYTES
    return len(cast(bytes, name))


def _arrow_names(names: Sequence[object], *, has_places: bool) -> pa.Array:
    if not has_places:
        return _texts(cast(Sequence[bytes], names))
    places = cast(Sequence[tuple[bytes, bytes, int]], names)
    columns = [_texts([one[0] for one in places]), _texts([one[1] for one in places])]
    lines = [one[2] if one[2] < 1 << 63 else 0 for one in places]
    return pa.StructArray.from_arrays([*columns, pa.array(lines, pa.int64())], fields=list(PLACE))


def _texts(names: Sequence[bytes]) -> pa.Array:
    """Return names as text; invalid UTF-8 is replaced."""
    try:
        return pa.array(names, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in names], pa.string())
