"""Keeps what was decoded of objects that questions come back to: footers, series, symbols. Bounded by bytes.

Objects never change under their key, so that nothing here grows old. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple, TypeVar

Value = TypeVar("Value")


class _Entry(NamedTuple):
    value: Any
    size: int


class SectionCache:
    """Forgets first what was longest not asked for. Sizes are what callers say, about what a value takes in memory."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], tuple[Value, int]]) -> Value:
        """Return the value of a key, made (with its size) if it is not held; what ``make`` raises is not kept.

        Two threads that miss at once both make it: waiting for each other would let one hold up all.
        """
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self.hits += 1
                value: Value = found.value
                return value
            self.misses += 1
        value, size = make()
        self._put(key, _Entry(value, size))
        return value

    def _put(self, key: Hashable, entry: _Entry) -> None:
        if entry.size > self._bytes_max:
            return
        with self._lock:
            if (old := self._entries.pop(key, None)) is not None:
                self.bytes_held -= old.size
            self._entries[key] = entry
            self.bytes_held += entry.size
            while self.bytes_held > self._bytes_max:
                _, dropped = self._entries.popitem(last=False)
                self.bytes_held -= dropped.size
