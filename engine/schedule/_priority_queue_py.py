"""The pure Python priority queue: a list that is searched for its smallest key."""

from __future__ import annotations

from typing import Generic, TypeVar

Item = TypeVar("Item")
Key = tuple[int, int, str]


class PriorityQueue(Generic[Item]):
    """See ``engine.schedule.priority_queue``."""

    def __init__(self) -> None:
        self._entries: list[tuple[Key, Item]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, first: int, second: int, name: str, item: Item) -> None:
        self._entries.append(((first, second, name), item))

    def peek(self) -> Key:
        return self._entries[self._first()][0]

    def pop(self) -> Item:
        return self._entries.pop(self._first())[1]

    def _first(self) -> int:
        if not self._entries:
            raise IndexError("the priority queue is empty")
        return min(range(len(self._entries)), key=lambda position: self._entries[position][0])
