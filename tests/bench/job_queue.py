"""How fast the indexed queue of jobs is at what the scheduler and the simulation do with it.

Two uses are tried. *Leases*: so many jobs run; a poll renews a few, takes out one that has ended, puts in a new one and
looks at the first (``engine.simulation.memory_schedule``). *Reference poll*: the live jobs of one poll are put in and
the first few taken out (``engine.schedule.reference``). Beside the plain twin stands what one would write in Python
for speed, ``heapq`` with entries that are found to be outdated when they come up.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable

from engine.schedule import _job_queue, _job_queue_py
from tests.bench.figures import Figures

NAME = "job_queue"
JOBS = 1000
POLLS = 20_000
TWIN_POLLS = 300
RENEWED = 4
CAPACITY = 8


class HeapQueue:
    """The same with ``heapq``: replacing leaves the old entry behind, to be skipped later."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, str]] = []
        self._keys: dict[str, tuple[int, int, int, int, str]] = {}

    def put(self, name: str, *, level: int, status: int, failures: int, expires_ms: int) -> None:
        key = self._keys[name] = (level, status, failures, expires_ms, name)
        heapq.heappush(self._heap, key)

    def delete(self, name: str) -> bool:
        return self._keys.pop(name, None) is not None

    def peek(self) -> str | None:
        while self._heap and self._keys.get(self._heap[0][4]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][4] if self._heap else None

    def pop(self) -> str | None:
        name = self.peek()
        if name is not None:
            del self._keys[name]
        return name


Queue = _job_queue_py.JobQueue | HeapQueue


def leases(make: Callable[[], Queue], polls: int) -> float:
    """Return the queue operations per second of polls on running jobs."""
    draw, queue = random.Random(1), make()
    names = [f"{number:016x}-T-S1-L0" for number in draw.sample(range(1 << 60), JOBS + polls)]
    for name in names[:JOBS]:
        queue.put(name, level=0, status=0, failures=0, expires_ms=draw.randrange(15_000))
    chosen = [[draw.randrange(JOBS) for _ in range(RENEWED)] for _ in range(polls)]
    started = time.perf_counter()
    for number in range(polls):
        now_ms = 15_000 + 5 * number
        for place in chosen[number][1:]:
            queue.put(names[number + 1 + place % (JOBS - 1)], level=0, status=0, failures=0, expires_ms=now_ms)
        queue.delete(names[number])
        queue.put(names[JOBS + number], level=0, status=0, failures=0, expires_ms=now_ms)
        queue.peek()
    return polls * (RENEWED + 2) / (time.perf_counter() - started)


def reference_polls(make: Callable[[], Queue], polls: int) -> float:
    """Return how many polls of the reference policy could be ordered in a second."""
    draw = random.Random(2)
    rows = [(f"{draw.randrange(1 << 60):016x}", draw.randrange(3), draw.randrange(2)) for _ in range(JOBS)]
    started = time.perf_counter()
    for _ in range(polls):
        queue = make()
        for name, level, status in rows:
            queue.put(name, level=level, status=status, failures=0, expires_ms=level)
        for _ in range(CAPACITY):
            queue.pop()
    return polls / (time.perf_counter() - started)


def run(full: bool) -> Figures:
    """Measure; ``full`` takes ten times the polls."""
    polls = POLLS * 10 if full else POLLS
    compiled, twin = leases(_job_queue.JobQueue, polls), leases(_job_queue_py.JobQueue, TWIN_POLLS)
    heap = leases(HeapQueue, polls)
    compiled_polls = reference_polls(_job_queue.JobQueue, polls // 200)
    figures = {
        "ops_per_s": compiled,
        "speedup_over_twin": compiled / twin,
        "speedup_over_heapq": compiled / heap,
        "reference_polls_per_s": compiled_polls,
        "reference_speedup_over_twin": compiled_polls / reference_polls(_job_queue_py.JobQueue, 20),
        "reference_speedup_over_heapq": compiled_polls / reference_polls(HeapQueue, polls // 200),
    }
    return Figures({"jobs": JOBS, "polls": polls, "renewed_per_poll": RENEWED - 1}, figures)
