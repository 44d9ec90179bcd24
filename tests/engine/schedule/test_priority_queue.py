"""The priority queue: one suite for the plain twin and the compiled one."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule import _priority_queue, _priority_queue_py

QUEUES = [_priority_queue_py.PriorityQueue, _priority_queue.PriorityQueue]
Queue = _priority_queue_py.PriorityQueue
INT64 = st.one_of(st.integers(0, 3), st.integers(-(1 << 63), (1 << 63) - 1))
KEYS = st.tuples(INT64, INT64, st.text(max_size=3))


@pytest.fixture(params=QUEUES, ids=["twin", "compiled"])
def make(request: pytest.FixtureRequest) -> Callable[[], Queue]:
    return request.param


def drained(queue: Queue) -> list:
    return [queue.pop() for _ in range(len(queue))]


def test_items_come_out_by_first_then_second_then_name(make: Callable[[], Queue]) -> None:
    queue = make()
    keys = [(0, 0, "b"), (0, 0, "a"), (0, 1, ""), (-1, 9, "z"), (0, -1, "z")]
    for key in keys:
        queue.push(*key, item=key)
    assert queue.peek() == (-1, 9, "z")
    assert drained(queue) == sorted(keys)


def test_names_are_compared_by_code_point(make: Callable[[], Queue]) -> None:
    names = ["b", "a", "Z", "aa", "é", "", "\U0001f600", "\uffff"]
    queue = make()
    for name in names:
        queue.push(0, 0, name, name)
    assert drained(queue) == sorted(names)


def test_an_empty_queue_has_nothing_to_pop_or_peek(make: Callable[[], Queue]) -> None:
    queue = make()
    queue.push(1, 2, "only", None)
    assert (queue.pop(), len(queue)) == (None, 0)
    for method in (queue.pop, queue.peek):
        with pytest.raises(IndexError, match="empty"):
            method()


def test_a_refused_push_changes_nothing() -> None:
    queue = _priority_queue.PriorityQueue()
    queue.push(1, 1, "a", "a")
    with pytest.raises(OverflowError):
        queue.push(1 << 63, 0, "b", "b")
    with pytest.raises(TypeError):
        queue.push(0, 0, None, "b")
    assert drained(queue) == ["a"]


@pytest.mark.slow
def test_popped_items_are_released() -> None:
    queue, item = _priority_queue.PriorityQueue(), object()
    before = sys.getrefcount(item)
    for number in range(100):
        queue.push(number, 0, "same", item)
    drained(queue)
    gc.collect()
    assert sys.getrefcount(item) == before


@given(st.lists(st.one_of(KEYS, st.none()), max_size=80))
def test_twin_and_compiled_agree_after_every_operation(steps: list[tuple[int, int, str] | None]) -> None:
    """A key is pushed, None pops; equal keys carry equal items."""
    twin, compiled = (make() for make in QUEUES)
    for key in steps:
        if key is not None:
            twin.push(*key, item=key)
            compiled.push(*key, item=key)
        elif len(twin):
            assert twin.peek() == compiled.peek()
            assert twin.pop() == compiled.pop()
        assert len(twin) == len(compiled)
    assert drained(twin) == drained(compiled)
