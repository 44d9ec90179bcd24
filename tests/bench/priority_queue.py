"""Speed of ranking candidates with the compiled priority queue, compared with ``heapq``.

One round does what ``engine.schedule.fairness`` does in a poll: push the candidates of each tenant into a queue, the
tenants into another, and pop as many as a worker leases. The sizes are realistic (tens to hundreds of candidates) and
100,000.
"""

from __future__ import annotations

import heapq
import random
import statistics
import time
from typing import Any

from engine.schedule import _priority_queue
from tests.bench.figures import Figures

NAME = "priority_queue"
TENANTS = 16
CAPACITY = 8
ROUNDS = {20: 3000, 500: 150, 100_000: 1}
"""Rounds of one repetition by the number of candidates."""
REPETITIONS, REPETITIONS_FULL = 5, 15

Row = tuple[str, int, str]
"""Tenant, priority and name of a candidate."""


class HeapQueue:
    """The same interface with ``heapq``."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, str, int, Any]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, first: int, second: int, name: str, item: Any) -> None:
        self._count += 1  # Prevents comparison of items.
        heapq.heappush(self._entries, (first, second, name, self._count, item))

    def peek(self) -> tuple[int, int, str]:
        return self._entries[0][:3]

    def pop(self) -> Any:
        return heapq.heappop(self._entries)[4]


def rows(count: int) -> list[Row]:
    """Return ``count`` candidates of a few tenants, always the same."""
    draw = random.Random(1)
    return [
        (f"tenant-{draw.randrange(TENANTS)}", draw.randrange(1 << 40), f"{draw.randrange(1 << 60):016x}")
        for _ in range(count)
    ]


def rank(queue: Any, work: list[Row]) -> list[str]:
    """Return the names of the first candidates, tenants in turn."""
    tenants: dict[str, Any] = {}
    for tenant, priority_ms, name in work:
        if tenant not in tenants:
            tenants[tenant] = queue()
        tenants[tenant].push(priority_ms, 0, name, name)
    order = queue()
    for tenant, waiting in tenants.items():
        order.push(0, waiting.peek()[0], tenant, tenant)
    taken = []
    for paid in range(min(CAPACITY, len(work))):
        tenant = order.pop()
        taken.append(tenants[tenant].pop())
        if len(tenants[tenant]):
            order.push(paid + 1, tenants[tenant].peek()[0], tenant, tenant)
    return taken


def rounds_per_s(queue: Any, work: list[Row], rounds: int, repetitions: int) -> float:
    """Return rounds per second, median of the repetitions."""
    seconds = []
    for _ in range(repetitions):
        started = time.perf_counter()
        for _ in range(rounds):
            rank(queue, work)
        seconds.append((time.perf_counter() - started) / rounds)
    return 1 / statistics.median(seconds)


def run(full: bool) -> Figures:
    """Run the benchmark; ``full`` repeats three times as often."""
    repetitions = REPETITIONS_FULL if full else REPETITIONS
    figures: dict[str, float] = {}
    for count, rounds in ROUNDS.items():
        work = rows(count)
        assert rank(_priority_queue.PriorityQueue, work) == rank(HeapQueue, work)
        compiled = rounds_per_s(_priority_queue.PriorityQueue, work, rounds, repetitions)
        figures[f"rounds_per_s_{count}"] = compiled
        figures[f"speedup_over_heapq_{count}"] = compiled / rounds_per_s(HeapQueue, work, rounds, repetitions)
    return Figures({"tenants": TENANTS, "capacity": CAPACITY, "repetitions": repetitions}, figures)
