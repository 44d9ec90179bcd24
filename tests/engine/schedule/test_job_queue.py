"""The job queue of the ``reference`` policy: one suite for the plain twin and the compiled one (S19 to S21)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.schedule import _job_queue, _job_queue_py, job_queue

QUEUES = [_job_queue_py.JobQueue, _job_queue.JobQueue]
Queue = _job_queue_py.JobQueue

S19 = [  # name, level, status, failures, end of the lease, as they come out
    ("d", 0, 0, 0, 5),
    ("a", 0, 1, 0, 2),
    ("b", 0, 1, 5, 2),
    ("c", 0, 1, 5, 3),
    ("x", 1, 0, 0, 2),
    ("y", 1, 0, 0, 2),
    ("z", 1, 0, 0, 3),
]


@pytest.fixture(params=QUEUES, ids=["twin", "compiled"])
def make(request: pytest.FixtureRequest) -> Callable[[], Queue]:
    return request.param


def filled(queue: Queue, rows: list[tuple[str, int, int, int, int]]) -> Queue:
    for name, level, status, failures, expires in rows:
        queue.put(name, level=level, status=status, failures=failures, expires_ms=expires)
        queue.check()
    return queue


def drained(queue: Queue, level: int | None = None) -> list[str]:
    names = []
    while (name := queue.pop(level)) is not None:
        names.append(name)
        queue.check()
    return names


def test_the_compiled_queue_is_the_one_in_use() -> None:
    assert ("python" if os.environ.get("LITHIFY_PURE") == "1" else "compiled") == job_queue.IMPLEMENTATION


@pytest.mark.row("S19")
def test_the_order_does_not_depend_on_insertion_order(make: Callable[[], Queue]) -> None:
    names = [row[0] for row in S19]
    for rows in itertools.islice(itertools.permutations(S19), 0, None, 97):
        queue = filled(make(), list(rows))
        assert list(queue) == names
        assert drained(queue) == names


@pytest.mark.row("S20")
def test_putting_a_job_twice_replaces_it(make: Callable[[], Queue]) -> None:
    queue = filled(make(), S19)
    queue.put("d", level=1, status=1, failures=9, expires_ms=9)
    queue.check()
    assert len(queue) == len(S19)
    assert drained(queue) == ["a", "b", "c", "x", "y", "z", "d"]


@pytest.mark.row("S21")
def test_deleting_a_missing_job_changes_nothing(make: Callable[[], Queue]) -> None:
    queue = filled(make(), S19)
    assert (queue.delete("nobody"), queue.delete("b"), queue.delete("b")) == (False, True, False)
    assert "b" not in queue
    assert drained(queue) == ["d", "a", "c", "x", "y", "z"]


def test_levels_can_be_looked_at_one_by_one(make: Callable[[], Queue]) -> None:
    queue = filled(make(), S19)
    assert (queue.levels(), queue.peek(), queue.peek(1), queue.peek(7)) == ([0, 1], "d", "x", None)
    assert drained(queue, 1) == ["x", "y", "z"]
    assert queue.levels() == [0]


def test_a_copy_is_independent(make: Callable[[], Queue]) -> None:
    queue = filled(make(), S19)
    copy = queue.copy()
    assert drained(queue) == list(copy)
    copy.check()
    assert len(copy) == len(S19)


def test_names_are_ordered_by_bytes(make: Callable[[], Queue]) -> None:
    names = ["b", "a", "Z", "aa", "é", "", "\U0001f600", "\uffff"]
    queue = filled(make(), [(name, 0, 0, 0, 0) for name in names])
    assert drained(queue) == sorted(names, key=str.encode)


def test_a_level_out_of_range_is_refused_and_changes_nothing() -> None:
    queue = filled(_job_queue.JobQueue(), S19)
    for level in (-1, job_queue.LEVELS_MAX):
        with pytest.raises(ValueError, match="level"):
            queue.put("a", level=level, status=0, failures=0, expires_ms=0)
    with pytest.raises(OverflowError):
        queue.put("a", level=0, status=0, failures=0, expires_ms=1 << 70)
    with pytest.raises(TypeError):
        queue.put(None, level=0, status=0, failures=0, expires_ms=0)
    queue.check()
    assert list(queue) == [row[0] for row in S19]


small = st.integers(0, 3)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdefgh"), small, small, small, small),
        st.tuples(st.just("delete"), st.sampled_from("abcdefgh")),
        st.tuples(st.just("pop"), st.one_of(st.none(), small)),
    ),
    max_size=60,
)


@given(operations)
def test_twin_and_compiled_agree_after_every_operation(steps: list[tuple]) -> None:
    queues = [make() for make in QUEUES]
    for step in steps:
        answers = []
        for queue in queues:
            if step[0] == "put":
                _, name, level, status, failures, expires = step
                answers.append(queue.put(name, level=level, status=status, failures=failures, expires_ms=expires))
            else:
                answers.append(getattr(queue, step[0])(step[1]))
            queue.check()
        assert answers[0] == answers[1]
        assert list(queues[0]) == list(queues[1])
        assert queues[0].levels() == queues[1].levels()
