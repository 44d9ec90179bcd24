"""Reference implementation of the symbol merge in pure Python: copies the stacks of rows to output partitions.

Only symbols that a kept row references are copied. The order of insertion, which determines all numbers of the output,
is per row:

a. stack ids new to the (source, partition), in ascending order, list their new locations, leaf first;
b. new locations, in ascending order, list their new mappings and, line by line, their new functions;
c. new mappings, in ascending order, list their new strings (build id, file name);
d. new functions, in ascending order, list their new strings (name, file name, system name);
e. strings, functions, mappings and locations are appended in these orders unless the output has an equal one, and the
   stacks are inserted in the order of the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Generic, Protocol, TypeVar

from engine.core.errors import BadReference
from engine.formats.profile_block.model import Function, Location, Mapping, StackTree, SymbolPartition

_Item = TypeVar("_Item")
_ItemCovariant = TypeVar("_ItemCovariant", covariant=True)


class Items(Protocol[_ItemCovariant]):
    """A table of source symbols: a list, or a dict from index to item with the needed ones."""

    def __getitem__(self, index: int, /) -> _ItemCovariant: ...
    def __len__(self) -> int: ...


class SourcePartition:
    """The symbols of a source partition, whole or pruned to those that the stack ids ``reached`` reference."""

    def __init__(self, partition: SymbolPartition, reached: Iterable[int] | None) -> None:
        self.max_nodes = max((tree.max_nodes for tree in partition.trees), default=0)
        self._has_functions = bool(partition.functions)
        self._trees = partition.trees
        self.locations: Items[Location] = partition.locations
        self.mappings: Items[Mapping] = partition.mappings
        self.functions: Items[Function] = partition.functions
        self.strings: Items[bytes] = partition.strings
        self._stacks: dict[int, list[int]] | None = None
        if reached is not None:
            self._prune(set(reached))

    def stack(self, stack_id: int) -> list[int]:
        """Return the locations of a stack, leaf first. Raises BadReference if the stack does not exist."""
        if self._stacks is not None:
            return self._stacks[stack_id]
        number, node = divmod(stack_id, self.max_nodes) if self.max_nodes else (0, stack_id)
        if number >= len(self._trees) or node >= len(self._trees[number].parents):
            raise BadReference("profiles", -1, f"stack {stack_id} is not in the partition's stack trees")
        tree = self._trees[number]
        locations = []
        while node:
            locations.append(tree.locations[node])
            node = tree.parents[node]
        return locations

    def lines(self, location: Location) -> tuple[tuple[int, int], ...]:
        """Return the lines of a location, none if the source has no functions."""
        return location.lines if self._has_functions else ()

    def _prune(self, stack_ids: set[int]) -> None:
        stacks = {stack_id: self.stack(stack_id) for stack_id in stack_ids}
        self.locations = {i: self.locations[i] for i in set(chain.from_iterable(stacks.values()))}
        used = self.locations.values()
        self.mappings = {i: self.mappings[i] for i in {location.mapping for location in used}}
        self.functions = {i: self.functions[i] for i in {f for at in used for f, _ in self.lines(at)}}
        refs = {ref for mapping in self.mappings.values() for ref in mapping[:2]}
        refs |= {ref for function in self.functions.values() for ref in function[:3]}
        self.strings = {i: self.strings[i] for i in refs}
        self._stacks = stacks
        self._trees = []


class _Table(Generic[_Item]):
    """An output table of distinct items in order of insertion."""

    def __init__(self, items: Iterable[_Item] = ()) -> None:
        self.items: list[_Item] = []
        self._refs: dict[_Item, int] = {}
        for item in items:
            self.add(item)

    def add(self, item: _Item) -> int:
        """Return the number of an item; append it if it is new."""
        ref = self._refs.setdefault(item, len(self.items))
        if ref == len(self.items):
            self.items.append(item)
        return ref


class OutputPartition:
    """The symbols of an output partition in construction."""

    def __init__(self, partition_id: int) -> None:
        self._id = partition_id
        self.strings = _Table([b""])
        self.mappings: _Table[Mapping] = _Table()
        self.functions: _Table[Function] = _Table()
        self.locations: _Table[Location] = _Table()
        self._tree = StackTree()
        self._nodes: dict[tuple[int, int], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def insert(self, stack: tuple[int, ...]) -> int:
        """Return the node of a stack of output locations (leaf first); add missing nodes from the root on."""
        known = self._stacks.get(stack)
        if known is not None:
            return known
        node = 0
        for location in reversed(stack):
            child = self._nodes.setdefault((node, location), len(self._tree.parents))
            if child == len(self._tree.parents):
                self._tree.parents.append(node)
                self._tree.locations.append(location)
            node = child
        self._stacks[stack] = node
        return node

    def finish(self) -> SymbolPartition:
        """Return the partition; ``stack_count`` is the number of distinct inserted stacks, including the empty one."""
        self._tree.stack_count = len(self._stacks)
        return SymbolPartition(
            id=self._id,
            strings=self.strings.items,
            mappings=self.mappings.items,
            functions=self.functions.items,
            locations=self.locations.items,
            trees=[self._tree],
        )


class PartitionTranslation:
    """Translates the numbers of a (source, partition) to those of the output partition with the same id."""

    def __init__(self, source: SourcePartition, output: OutputPartition) -> None:
        self._source = source
        self._output = output
        self._stacks: dict[int, int] = {}
        self._locations: dict[int, int] = {}
        self._mappings: dict[int, int] = {}
        self._functions: dict[int, int] = {}
        self._strings: dict[int, int] = {}

    def translate(self, stack_ids: Sequence[int]) -> list[int]:
        """Return the output stack ids for those of a row; copy new symbols."""
        new_stacks = _new(stack_ids, self._stacks)
        resolved = {stack_id: self._source.stack(stack_id) for stack_id in sorted(new_stacks)}
        self._copy_locations(_new(chain.from_iterable(resolved.values()), self._locations))
        for stack_id in new_stacks:
            stack = tuple(self._locations[location] for location in resolved[stack_id])
            self._stacks[stack_id] = self._output.insert(stack)
        return [self._stacks[stack_id] for stack_id in stack_ids]

    def _copy_locations(self, new_locations: list[int]) -> None:
        source, output = self._source, self._output
        ascending = [source.locations[i] for i in sorted(new_locations)]
        new_mappings = _new((location.mapping for location in ascending), self._mappings)
        new_functions = _new((f for location in ascending for f, _ in source.lines(location)), self._functions)
        self._copy_strings(new_mappings, new_functions)
        for i in new_functions:
            self._functions[i] = output.functions.add(self._function(source.functions[i]))
        for i in new_mappings:
            self._mappings[i] = output.mappings.add(self._mapping(source.mappings[i]))
        for i in new_locations:
            self._locations[i] = output.locations.add(self._location(source.locations[i]))

    def _copy_strings(self, new_mappings: list[int], new_functions: list[int]) -> None:
        refs = list(self._string_refs(new_mappings, new_functions))
        for ref in _new(refs, self._strings):
            self._strings[ref] = self._output.strings.add(self._source.strings[ref])

    def _string_refs(self, new_mappings: list[int], new_functions: list[int]) -> Iterator[int]:
        for i in sorted(new_mappings):
            mapping = self._source.mappings[i]
            yield from (mapping.build_id, mapping.filename)
        for i in sorted(new_functions):
            function = self._source.functions[i]
            yield from (function.name, function.filename, function.system_name)

    def _mapping(self, mapping: Mapping) -> Mapping:
        return mapping._replace(filename=self._strings[mapping.filename], build_id=self._strings[mapping.build_id])

    def _function(self, function: Function) -> Function:
        name, system_name, filename = (self._strings[ref] for ref in function[:3])
        return Function(name, system_name, filename, function.start_line)

    def _location(self, location: Location) -> Location:
        lines = tuple((self._functions[function], line) for function, line in self._source.lines(location))
        return location._replace(mapping=self._mappings[location.mapping], lines=lines)


def _new(refs: Iterable[int], known: dict[int, int]) -> list[int]:
    """Return the distinct references that are not known, in order of first occurrence."""
    return list(dict.fromkeys(ref for ref in refs if ref not in known))
