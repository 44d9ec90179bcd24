"""Objects are deleted in the order in which a heap of all of them would give them out."""

from __future__ import annotations

import heapq
import random

import pytest

from engine.simulation.memory.deletion_queue import DeletionQueue


def test_a_moment_has_to_be_strictly_past() -> None:
    line = DeletionQueue()
    line.put(10, "a")
    assert line.take(10, 5) == []
    assert line.take(11, 5) == ["a"]
    assert line.take(11, 5) == []


@pytest.mark.parametrize("seed", range(10))
def test_the_line_is_one_heap(seed: int) -> None:
    draw = random.Random(seed)
    line, heap, now_ms, given = DeletionQueue(), list[tuple[int, str]](), 100, 0
    for _ in range(300):
        moment_ms = now_ms + draw.randrange(-5, 20)
        for _ in range(draw.randrange(6)):
            ulid = f"{draw.randrange(40):02}"
            line.put(moment_ms, ulid)
            heapq.heappush(heap, (moment_ms, ulid))
        now_ms += draw.randrange(3)
        count, expected = draw.randrange(12), list[str]()
        while heap and heap[0][0] < now_ms and len(expected) < count:
            expected.append(heapq.heappop(heap)[1])
        assert line.take(now_ms, count) == expected
        given += len(expected)
    assert given > 300
