"""A program that people would write, with the unmodified profiling SDK in it: it plans routes through a city.

``LITHIFY_ADDRESS=… LITHIFY_CREDENTIAL=… python -m webadmin.embedded.demo.route_planner SECONDS``, for so long and until
its standard input ends. The SDK is told where to send and with which credential; everything else is as it comes.
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
"""What it says once the SDK runs."""
NO_SDK = 3
"""Exit code where the SDK cannot be imported."""
CITY_SIZE = 40
PAUSE_SHARE = 3  # of the time it works: a service waits for its next request most of the time

Crossing = tuple[int, int]


class City:
    """Streets on a grid, each as slow as its traffic."""

    def __init__(self, draw: random.Random) -> None:
        self._seconds = {(x, y): draw.randint(5, 90) for x in range(CITY_SIZE) for y in range(CITY_SIZE)}

    def neighbours(self, crossing: Crossing) -> Iterator[tuple[Crossing, int]]:
        """Return the crossings next to one, and how long the way there takes."""
        x, y = crossing
        for beside in ((x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)):
            if beside in self._seconds:
                yield beside, self._seconds[beside]


def shortest_route(city: City, start: Crossing, goal: Crossing) -> int:
    """Return the seconds of the fastest way (Dijkstra)."""
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
    """Answer one request after the other for so long, and until it is asked to stop."""
    draw = random.Random(7)
    city = City(draw)
    end = time.monotonic() + seconds
    while time.monotonic() < end or not stop.is_set():
        begun = time.monotonic()
        start, goal = ((draw.randrange(CITY_SIZE), draw.randrange(CITY_SIZE)) for _ in range(2))
        shortest_route(city, start, goal)
        time.sleep(PAUSE_SHARE * (time.monotonic() - begun))


def main(seconds: str) -> None:
    """Switch the profiler on, work, and send what is left at the end."""
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
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    serve(stop, float(seconds))
    pyroscope.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
