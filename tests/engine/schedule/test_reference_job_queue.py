"""The job queue of the reference policy: level, status, failures, end of the lease, name."""

from __future__ import annotations

import itertools

import pytest

from tests.reference_policy.job_queue import JobQueue

ROWS = [  # name, level, status, failures, end of the lease, in the order of the queue
    ("d", 0, 0, 0, 5),
    ("a", 0, 1, 0, 2),
    ("b", 0, 1, 5, 2),
    ("c", 0, 1, 5, 3),
    ("x", 1, 0, 0, 2),
    ("y", 1, 0, 0, 2),
    ("z", 1, 0, 0, 3),
]


def filled(rows: list[tuple[str, int, int, int, int]]) -> JobQueue:
    queue = JobQueue()
    for name, level, status, failures, expires in rows:
        queue.put(name, level=level, status=status, failures=failures, expires_ms=expires)
        queue.check()
    return queue


def drained(queue: JobQueue) -> list[str]:
    return [name for _ in range(len(queue)) if (name := queue.pop()) is not None]


@pytest.mark.row("S19")
def test_the_order_does_not_depend_on_that_of_insertion() -> None:
    names = [row[0] for row in ROWS]
    for rows in itertools.islice(itertools.permutations(ROWS), 0, None, 97):
        queue = filled(list(rows))
        assert list(queue) == names
        assert drained(queue) == names


@pytest.mark.row("S20")
def test_putting_a_job_again_replaces_it() -> None:
    queue = filled(ROWS)
    queue.put("d", level=1, status=1, failures=9, expires_ms=9)
    assert len(queue) == len(ROWS)
    assert drained(queue) == ["a", "b", "c", "x", "y", "z", "d"]


@pytest.mark.row("S21")
def test_deleting_an_unknown_job_changes_nothing() -> None:
    queue = filled(ROWS)
    assert (queue.delete("unknown"), queue.delete("b"), queue.delete("b")) == (False, True, False)
    assert "b" not in queue
    assert drained(queue) == ["d", "a", "c", "x", "y", "z"]
