"""The calendar of a simulated world gives out events as one sorted list of them would."""

from __future__ import annotations

import heapq
import random

import pytest

from engine.simulation.environment.event_queue import PAGE_BITS, EventQueue

PAGE_MS = 1 << PAGE_BITS


def _next(queue: EventQueue, end_ms: int) -> tuple[int, object] | None:
    """Take out the next event that is due by then."""
    page = queue.open_page(end_ms)
    if not page or page[0][0] > end_ms:
        return None
    when_ms, _, _, argument = heapq.heappop(page)
    return when_ms, argument


def test_events_of_one_moment_keep_their_order_also_those_planned_while_it_lasts() -> None:
    queue = EventQueue()
    for name in ("first", "second"):
        queue.put(100, print, name)
    queue.put(99, print, "before")
    assert _next(queue, 100) == (99, "before")
    assert _next(queue, 100) == (100, "first")
    queue.put(100, print, "third")
    queue.put(5, print, "late")
    assert [_next(queue, 100) for _ in range(4)] == [(5, "late"), (100, "second"), (100, "third"), None]


def test_nothing_comes_before_its_moment() -> None:
    queue = EventQueue()
    queue.put(10, print, "same page")
    queue.put(3 * PAGE_MS, print, "later page")
    assert _next(queue, 9) is None
    assert _next(queue, 10) == (10, "same page")
    assert _next(queue, 3 * PAGE_MS - 1) is None
    assert _next(queue, 3 * PAGE_MS) == (3 * PAGE_MS, "later page")


@pytest.mark.parametrize("seed", range(20))
def test_the_calendar_is_one_sorted_list(seed: int) -> None:
    draw = random.Random(seed)
    queue, plain, now_ms, given = EventQueue(), list[tuple[int, int]](), 0, 0
    for number in range(600):
        delay_ms = draw.choice([0, 1, draw.randrange(PAGE_MS), draw.randrange(40 * PAGE_MS), -draw.randrange(PAGE_MS)])
        queue.put(now_ms + delay_ms, print, number)
        heapq.heappush(plain, (now_ms + delay_ms, number))
        if draw.random() < 0.5:
            end_ms = now_ms + draw.randrange(3 * PAGE_MS)
            while (event := _next(queue, end_ms)) is not None:
                assert event == heapq.heappop(plain)
                given += 1
            assert not plain or plain[0][0] > end_ms
            now_ms = end_ms
    assert given > 100
