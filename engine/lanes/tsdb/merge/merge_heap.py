"""A binary heap whose order of equal items is part of what Prometheus' merges give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class MergeHeap(Generic[Item]):
    """The smallest first; ``is_before(a, b)`` says whether one comes strictly before another.

    Items move past another only where they come strictly before it. Which of equal items is taken first follows from
    that alone, so a heap of the standard library cannot stand in.
    """

    def __init__(self, is_before: Callable[[Item, Item], bool]) -> None:
        self._items: list[Item] = []
        self._is_before = is_before

    def __len__(self) -> int:
        return len(self._items)

    @property
    def top(self) -> Item:
        """Return the item that would be taken next."""
        return self._items[0]

    def push(self, item: Item) -> None:
        """Put an item in."""
        items = self._items
        items.append(item)
        place = len(items) - 1
        while place and self._is_before(items[place], items[parent := (place - 1) // 2]):
            items[place], items[parent] = items[parent], items[place]
            place = parent

    def pop(self) -> Item:
        """Take the smallest item out."""
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
