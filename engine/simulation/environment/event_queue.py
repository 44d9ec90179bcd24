"""Queue of pending events: a calendar queue, so that the cost of an event does not depend on the number of others.

Events of the same time interval form a *page*. Later pages are unsorted; the current page is a small heap. A single
heap of thousands of events would cause more cache misses per event.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Handler = Callable[[Any], None]
Event = tuple[int, int, Handler, Any]
"""Time in milliseconds, sequence number, handler and its argument."""

PAGE_BITS = 5
"""Length of a page as a power of two of milliseconds; a thousand workers cause about twenty events per page."""


class EventQueue:
    """A queue of events sorted by time, then by order of insertion."""

    def __init__(self) -> None:
        self.soon: list[Event] = []
        """The current page as a heap."""
        self._open = -1
        self._pages: dict[int, list[Event]] = {}
        self._numbers: list[int] = []
        self._count = 0

    def put(self, when_ms: int, handler: Handler, argument: Any) -> None:
        """Add an event. An event in the past comes next."""
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
        """Return the heap of the next events, empty if there is none in the pages up to ``end_ms``.

        The list is reused until it is empty; ``put`` adds events of the current page to it.
        """
        if not self.soon and self._numbers and self._numbers[0] <= end_ms >> PAGE_BITS:
            self._open = heapq.heappop(self._numbers)
            self.soon = self._pages.pop(self._open)
            heapq.heapify(self.soon)
        return self.soon
