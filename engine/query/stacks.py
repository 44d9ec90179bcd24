"""Resolve stack ids to function names."""

from __future__ import annotations

from engine.core.errors import BadReference
from engine.formats.profile_block.model import Location, SymbolPartition


class StackResolver:
    """Resolves the stacks of one partition. A location without lines contributes no frame."""

    def __init__(self, partition: SymbolPartition) -> None:
        self._partition = partition
        self._max_nodes = max((tree.max_nodes for tree in partition.trees), default=0)
        self._frames: dict[int, tuple[str, ...]] = {}

    def functions(self, stack_id: int) -> list[str]:
        """Return the stack's function names, leaf first. Raises BadReference if the stack does not exist."""
        number, node = divmod(stack_id, self._max_nodes) if self._max_nodes else (0, stack_id)
        trees = self._partition.trees
        if number >= len(trees) or node >= len(trees[number].parents):
            raise BadReference("profiles", -1, f"stack {stack_id} is not in the partition's stack trees")
        names: list[str] = []
        while node:
            names += self._location_frames(trees[number].locations[node])
            node = trees[number].parents[node]
        return names

    def _location_frames(self, index: int) -> tuple[str, ...]:
        if index not in self._frames:
            self._frames[index] = self._names(self._partition.locations[index])
        return self._frames[index]

    def _names(self, location: Location) -> tuple[str, ...]:
        functions, strings = self._partition.functions, self._partition.strings
        if not functions:
            return ()
        return tuple(strings[functions[ref].name].decode(errors="replace") for ref, _ in location.lines)
