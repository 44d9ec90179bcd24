"""Example program with the unmodified profiling SDK: plans routes through a city.

``LITHIFY_ADDRESS=… LITHIFY_CREDENTIAL=… python -m webadmin.embedded.demo.route_planner SECONDS`` runs for at least this
time, and until its standard input is closed. The SDK gets an address and a credential; its other options are defaults.
"""

from __future__ import annotations

import heapq
import os
import random
import sys
import threading
import time
from collections.abc import Iterator

SERVICE = "route-planner"
PROFILED = "profiled"
"""Output line once the SDK runs."""
NO_SDK = 3
"""Exit code if the SDK cannot be imported."""
CITY_SIZE = 40
PAUSE_SHARE = 3  # Idle time per working time: a service mostly waits for requests.

Crossing = tuple[int, int]


class City:
    """A grid of streets with random travel times."""

    def __init__(self, draw: random.Random) -> None:
        self._seconds = {(x, y): draw.randint(5, 90) for x in range(CITY_SIZE) for y in range(CITY_SIZE)}

    def neighbours(self, crossing: Crossing) -> Iterator[tuple[Crossing, int]]:
        """Return the adjacent crossings, with the travel time to each."""
        x, y = crossing
        for beside in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if beside in self._seconds:
                yield beside, self._seconds[beside]


def shortest_route(city: City, start: Crossing, goal: Crossing) -> int:
    """Return the seconds of the fastest route (Dijkstra)."""
    best = {start: 0}
    waiting = [(0, start)]
    while waiting:
        seconds, crossing = heapq.heappop(waiting)
        if crossing == goal:
            return seconds
        if seconds > best[crossing]:
            continue
        for beside, more in city.neighbours(crossing):
            if seconds + more < best.get(beside, seconds + more + 1):
                best[beside] = seconds + more
                heapq.heappush(waiting, (seconds + more, beside))
    raise ValueError(f"no way leads to {goal}")


def serve(stop: threading.Event, seconds: float) -> None:
    """Process requests for this many seconds, and until ``stop`` is set."""
    draw = random.Random(7)
    city = City(draw)
    end = time.monotonic() + seconds
    while time.monotonic() < end or not stop.is_set():
        begun = time.monotonic()
        start, goal = ((draw.randrange(CITY_SIZE), draw.randrange(CITY_SIZE)) for _ in range(2))
        shortest_route(city, start, goal)
        time.sleep(PAUSE_SHARE * (time.monotonic() - begun))


def _wait_for_end(stop: threading.Event) -> None:
    sys.stdin.read()
    stop.set()


def main(seconds: str) -> None:
    """Start the profiler, process requests, and flush the profiler at the end."""
    try:
        import pyroscope
    except ImportError:
        sys.exit(NO_SDK)
    pyroscope.configure(
        application_name=SERVICE,
        server_address=os.environ["LITHIFY_ADDRESS"],
        basic_auth_username=SERVICE,
        basic_auth_password=os.environ["LITHIFY_CREDENTIAL"],
    )
    print(PROFILED, flush=True)
    stop = threading.Event()
    threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    serve(stop, float(seconds))
    pyroscope.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
