"""Intern the symbols of many profiles in one symbol partition: that of a segment's dataset.

Strings are equal by value, mappings and functions by all fields, locations by (mapping, address, lines, folded), stacks
by their locations. New entries are numbered in the order of the profile's tables, tree nodes in sample order from the
root of each stack.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from engine.formats.pprof.pprof_model import MAPPING_HAS_FUNCTIONS, Integers, Profile
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition


class SymbolInterner:
    """Collects the symbols of normalised profiles in one partition (id 0, one stack tree)."""

    def __init__(self) -> None:
        self._strings: dict[bytes, int] = {b"": 0}
        self._mappings: dict[Mapping, int] = {}
        self._functions: dict[Function, int] = {}
        self._locations: dict[Location, int] = {}
        self._stacks: dict[bytes, int] = {}
        self._tree = StackTree()
        self._children: dict[int, int] = {}

    @property
    def is_symbolized(self) -> bool:
        """Whether the mapping of every location has functions."""
        named = [bool(mapping.flags & MAPPING_HAS_FUNCTIONS) for mapping in self._mappings]
        return all(named[location.mapping] for location in self._locations)

    def intern(self, profile: Profile) -> Integers:
        """Add the profile's symbols; return the stack id of each of its samples."""
        strings = self._intern_strings(profile)
        mappings = [self._mappings.setdefault(one, len(self._mappings)) for one in _mappings(profile, strings)]
        functions = [self._functions.setdefault(one, len(self._functions)) for one in _functions(profile, strings)]
        found = _locations(profile, mappings, functions)
        locations = [self._locations.setdefault(one, len(self._locations)) for one in found]
        return self._intern_stacks(profile, np.array(locations, np.uint32))

    def partition(self) -> SymbolPartition:
        """Return everything collected so far, ready to be encoded."""
        self._tree.stack_count = len(self._stacks)
        return SymbolPartition(
            id=0,
            strings=list(self._strings),
            mappings=list(self._mappings),
            functions=list(self._functions),
            locations=list(self._locations),
            trees=[self._tree],
        )

    def _intern_strings(self, profile: Profile) -> Integers:
        """Add the strings that symbols and sample types use; return the ref of each (0 for the others)."""
        functions, mappings = profile.functions, profile.mappings
        types = np.array(profile.sample_types, np.int64).reshape(-1)
        columns = (functions.names, functions.system_names, functions.filenames, mappings.filenames, mappings.build_ids)
        refs = np.zeros(len(profile.strings), np.int64)
        for position in np.unique(np.concatenate((*columns, types))).tolist():
            refs[position] = self._strings.setdefault(profile.strings[position], len(self._strings))
        return refs

    def _intern_stacks(self, profile: Profile, locations: NDArray[np.uint32]) -> Integers:
        samples = profile.samples
        stacks = locations[samples.location_ids.astype(np.int64) - 1]
        frames, keys = stacks.tolist(), stacks.tobytes()
        starts = samples.location_starts.tolist()
        ids = np.zeros(len(samples), np.int64)
        for i in range(len(samples)):
            start, end = starts[i], starts[i + 1]
            key = keys[4 * start : 4 * end]
            known = self._stacks.get(key)
            if known is None:
                known = self._stacks[key] = self._insert(frames[start:end])
            ids[i] = known
        return ids

    def _insert(self, leaf_first: list[int]) -> int:
        """Walk a stack from its root end, adding what is missing; return the node of its leaf."""
        parents, locations, children = self._tree.parents, self._tree.locations, self._children
        node = 0
        for location in reversed(leaf_first):
            edge = node << 32 | location
            child = children.get(edge)
            if child is None:
                child = children[edge] = len(parents)
                parents.append(node)
                locations.append(location)
            node = child
        return node


def _mappings(profile: Profile, strings: Integers) -> Iterator[Mapping]:
    mappings = profile.mappings
    columns = (
        strings[mappings.filenames],
        strings[mappings.build_ids],
        mappings.flags,
        mappings.memory_starts,
        mappings.memory_limits,
        mappings.file_offsets,
    )
    return map(Mapping._make, zip(*(column.tolist() for column in columns), strict=True))


def _functions(profile: Profile, strings: Integers) -> Iterator[Function]:
    functions = profile.functions
    columns = (
        strings[functions.names],
        strings[functions.system_names],
        strings[functions.filenames],
        functions.start_lines,
    )
    return map(Function._make, zip(*(column.tolist() for column in columns), strict=True))


def _locations(profile: Profile, mappings: list[int], functions: list[int]) -> Iterator[Location]:
    table = profile.locations
    line_functions = [functions[id_ - 1] for id_ in table.line_function_ids.tolist()]
    lines = list(zip(line_functions, table.line_numbers.tolist(), strict=True))
    starts = table.line_starts.tolist()
    columns = (table.mapping_ids.tolist(), table.addresses.tolist(), table.folded.tolist())
    for i, (mapping_id, address, folded) in enumerate(zip(*columns, strict=True)):
        own_lines = tuple(lines[starts[i] : starts[i + 1]])
        yield Location(mappings[mapping_id - 1], address, own_lines, bool(folded))
