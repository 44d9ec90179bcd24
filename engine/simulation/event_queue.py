"""The events to come of a simulated world: a calendar, so that one event costs the same however many others wait.

Events of the same stretch of time are a *page*. Later pages lie unordered; the one whose time has come is a small heap.
One heap of all events would be walked from top to bottom for each, and few of the thousands there are in the cache.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], None]
Event = tuple[int, int, Handler, Any]
"""When, the how-manieth that was planned, and what to do."""

PAGE_BITS = 5
"""A page is so many binary digits of milliseconds long: a thousand workers give it some twenty events."""


class EventQueue:
    """Gives out events by their moment; those of one moment in the order in which they were planned."""

    def __init__(self) -> None:
        self.soon: list[Event] = []
        """The open page as a heap; empty once nothing is left on it."""
        self._open = -1
        self._pages: dict[int, list[Event]] = {}
        self._numbers: list[int] = []
        self._count = 0

    def put(self, when_ms: int, handler: Handler, argument: Any) -> None:
        """Plan an event. What should have been long ago comes next."""
        self._count += 1
        event = (when_ms, self._count, handler, argument)
        number = when_ms >> PAGE_BITS
        page = self._pages.get(number)
        if page is not None:
            page.append(event)
        elif number <= self._open:
            heapq.heappush(self.soon, event)
        else:
            self._pages[number] = [event]
            heapq.heappush(self._numbers, number)

    def open_page(self, end_ms: int) -> list[Event]:
        """Return the heap of the next events, empty if none is planned in the pages up to ``end_ms``.

        It stays the same list until it is empty; ``put`` adds to it what belongs there.
        """
        if not self.soon and self._numbers and self._numbers[0] <= end_ms >> PAGE_BITS:
            self._open = heapq.heappop(self._numbers)
            self.soon = self._pages.pop(self._open)
            heapq.heapify(self.soon)
        return self.soon
