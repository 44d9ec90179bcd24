"""Cache of decoded sections of objects (footers, series, symbols), bounded by bytes.

Objects are immutable, so entries are never invalidated. Thread-safe.
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
    """A least-recently-used cache. Callers supply the approximate size in memory of each value."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], tuple[Value, int]]) -> Value:
        """Return the value of ``key``; on a miss, that of ``make``, which returns the value and its size in bytes.

        Exceptions of ``make`` are not cached. Concurrent misses of one key each call ``make``, so that no thread waits
        for another.
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
