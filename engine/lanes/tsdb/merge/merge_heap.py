"""A binary heap with the same order of equal items as Prometheus' heap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class MergeHeap(Generic[Item]):
    """A min-heap; ``is_before(a, b)`` returns whether ``a`` comes strictly before ``b``.

    An item moves past another only if it comes strictly before it, which determines the order of equal items. The heap
    of the standard library orders them differently.
    """

    def __init__(self, is_before: Callable[[Item, Item], bool]) -> None:
        self._items: list[Item] = []
        self._is_before = is_before

    def __len__(self) -> int:
        return len(self._items)

    @property
    def top(self) -> Item:
        """Return the smallest item."""
        return self._items[0]

    def push(self, item: Item) -> None:
        """Add an item."""
        items = self._items
        items.append(item)
        place = len(items) - 1
        while place and self._is_before(items[place], items[parent := (place - 1) // 2]):
            items[place], items[parent] = items[parent], items[place]
            place = parent

    def pop(self) -> Item:
        """Remove and return the smallest item."""
        items = self._items
        last = len(items) - 1
        items[0], items[last] = items[last], items[0]
        place = 0
        while (child := 2 * place + 1) < last:
            if child + 1 < last and self._is_before(items[child + 1], items[child]):
                child += 1
            if not self._is_before(items[child], items[place]):
                break
            items[place], items[child] = items[child], items[place]
            place = child
        return items.pop()
