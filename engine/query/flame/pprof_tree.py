"""Convert merged stacks to a pprof profile with full symbols: files, lines, inlined calls, addresses and binaries.

The stacks are merged in a ``FlameTree`` whose frames are locations instead of function names: create its tables with
``location_table``, add rows of any number of datasets, then convert it. A tree of function names gives a profile with
names only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.core.errors import LimitExceeded
from engine.formats.pprof.pprof_build import ValueType
from engine.formats.pprof.pprof_model import Functions, Integers, Locations, Mappings, Profile, Samples
from engine.formats.profile_block.model import SymbolPartition
from engine.query.flame.stack_table import StackTable, location_stacks
from engine.query.flame.tree import FlameTree, Nodes
from engine.query.flame.truncation import OTHER as OTHER_NAME
from engine.query.flame.truncation import truncated

LOCATION_IDS_MAX = 20_000_000
"""Maximum location ids of all samples; each sample repeats its callers."""


class Binary(NamedTuple):
    """A mapping, its strings resolved; flags as in ``model.Mapping``."""

    filename: bytes = b""
    build_id: bytes = b""
    flags: int = 0
    memory_start: int = 0
    memory_limit: int = 0
    file_offset: int = 0


class SourceFunction(NamedTuple):
    """A function, its strings resolved."""

    name: bytes
    system_name: bytes = b""
    filename: bytes = b""
    start_line: int = 0


class Place(NamedTuple):
    """A location, resolved; ``lines`` are (function, line), innermost first."""

    lines: tuple[tuple[SourceFunction, int], ...]
    address: int = 0
    binary: Binary = Binary()
    is_folded: bool = False


def _named(name: bytes) -> Place:
    return Place(((SourceFunction(name, name), 0),))


OTHER = _named(OTHER_NAME)


def location_table(partition: SymbolPartition) -> StackTable:
    """Return the stacks of a decoded partition, with whole locations as frames; see ``stack_table``."""
    strings = partition.strings
    binaries = [Binary(strings[one.filename], strings[one.build_id], *one[2:]) for one in partition.mappings]
    functions = [
        SourceFunction(strings[one.name], strings[one.system_name], strings[one.filename], one.start_line)
        for one in partition.functions
    ]
    places = [
        Place(
            tuple((functions[function], line) for function, line in location.lines) if functions else (),
            location.address,
            binaries[location.mapping] if location.mapping < len(binaries) else Binary(),
            location.is_folded,
        )
        for location in partition.locations
    ]
    return location_stacks(partition, places, [[ref] for ref in range(len(places))])


def pprof_profile(
    tree: FlameTree,
    *,
    sample_type: ValueType,
    period_type: ValueType,
    period: int,
    time_ns: int,
    duration_ns: int = 0,
    max_nodes: int = 0,
) -> Profile:
    """Return a tree of places or of function names as a profile with one sample per stack that has an own value.

    ``max_nodes`` truncates the tree first (below 1: not at all); removed nodes are in places named ``other``. Raises
    LimitExceeded if the samples would have more than ``LOCATION_IDS_MAX`` location ids.
    """
    is_named = any(isinstance(name, bytes) for name in tree.nodes().names[:1])
    nodes = truncated(tree, max_nodes, OTHER_NAME if is_named else OTHER).nodes()
    places = [_named(name) for name in nodes.names] if is_named else nodes.names
    tables = _Tables()
    for place in places:
        tables.add(place)
    types = [(tables.string(kind.encode()), tables.string(unit.encode())) for kind, unit in (sample_type, period_type)]
    return Profile(
        samples=_samples(nodes),
        mappings=tables.mapping_columns(),
        locations=tables.location_columns(places),
        functions=tables.function_columns(),
        strings=list(tables.strings),
        sample_types=types[:1],
        period_type=types[1],
        period=period,
        time_ns=time_ns,
        duration_ns=duration_ns,
        default_sample_type=types[0][0],
    )


def _samples(nodes: Nodes) -> Samples:
    """Return a sample per node with an own value; its location ids are those of the nodes up to the root."""
    depths = np.zeros(len(nodes.parents), np.int64)
    first, end, depth = 0, 1, 0
    while first < end:  # a level after the other
        depths[first:end] = depth
        first, end, depth = int(nodes.child_starts[first]), int(nodes.child_starts[end]), depth + 1
    leaves = np.flatnonzero(nodes.own)
    starts = np.concatenate([[0], np.cumsum(depths[leaves])])
    if starts[-1] > LOCATION_IDS_MAX:
        raise LimitExceeded("pprof", -1, f"the samples have {starts[-1]} location ids; {LOCATION_IDS_MAX} are allowed")
    ids = np.zeros(starts[-1], np.uint64)
    places, at = starts[:-1], leaves
    while len(at):
        places, at = places[at > 0], at[at > 0]
        ids[places] = nodes.name_refs[at] + 1
        places, at = places + 1, nodes.parents[at].astype(np.intp)
    zeros = np.zeros(0, np.int64)
    return Samples(
        location_starts=starts,
        location_ids=ids,
        value_starts=np.arange(len(leaves) + 1, dtype=np.int64),
        values=nodes.own[leaves],
        label_starts=np.zeros(len(leaves) + 1, np.int64),
        label_keys=zeros,
        label_strings=zeros,
        label_numbers=zeros,
        label_units=zeros,
    )


class _Tables:
    """The tables of a profile; ids are positions from 1 on."""

    def __init__(self) -> None:
        self.strings: dict[bytes, int] = {b"": 0}
        self._binaries: dict[Binary, int] = {}
        self._functions: dict[SourceFunction, int] = {}

    def string(self, text: bytes) -> int:
        return self.strings.setdefault(text, len(self.strings))

    def add(self, place: Place) -> None:
        """Assign ids to the parts of a place."""
        if place.binary not in self._binaries:
            self._binaries[place.binary] = len(self._binaries) + 1
            self.string(place.binary.filename)
            self.string(place.binary.build_id)
        for function, _ in place.lines:
            if function not in self._functions:
                self._functions[function] = len(self._functions) + 1
                for text in function[:3]:
                    self.string(text)

    def mapping_columns(self) -> Mappings:
        rows = list(self._binaries)
        return Mappings(
            ids=np.arange(1, len(rows) + 1, dtype=np.uint64),
            memory_starts=np.array([one.memory_start for one in rows], np.uint64),
            memory_limits=np.array([one.memory_limit for one in rows], np.uint64),
            file_offsets=np.array([one.file_offset for one in rows], np.uint64),
            filenames=self._refs([one.filename for one in rows]),
            build_ids=self._refs([one.build_id for one in rows]),
            flags=np.array([one.flags & 15 for one in rows], np.uint8),
        )

    def function_columns(self) -> Functions:
        rows = list(self._functions)
        return Functions(
            ids=np.arange(1, len(rows) + 1, dtype=np.uint64),
            names=self._refs([one.name for one in rows]),
            system_names=self._refs([one.system_name for one in rows]),
            filenames=self._refs([one.filename for one in rows]),
            start_lines=np.array([one.start_line for one in rows], np.int64),
        )

    def location_columns(self, places: list[Place]) -> Locations:
        lines = [line for place in places for line in place.lines]
        return Locations(
            ids=np.arange(1, len(places) + 1, dtype=np.uint64),
            mapping_ids=np.array([self._binaries[place.binary] for place in places], np.uint64),
            addresses=np.array([place.address for place in places], np.uint64),
            folded=np.array([place.is_folded for place in places], np.uint8),
            line_starts=np.cumsum([0, *(len(place.lines) for place in places)], dtype=np.int64),
            line_function_ids=np.array([self._functions[function] for function, _ in lines], np.uint64),
            line_numbers=np.array([number for _, number in lines], np.int64),
        )

    def _refs(self, texts: list[bytes]) -> Integers:
        return np.array([self.strings[text] for text in texts], np.int64)
