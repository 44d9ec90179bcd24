"""Two hundred slow connections without a credential: pushes, polls and health are not affected."""

from __future__ import annotations

import itertools
import json
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.write_path import METRICS_TOKEN, WritePath
from tests.faults.slow_connections import NO_END, NOTHING, SlowConnections
from tests.processes import Processes

pytestmark = pytest.mark.stack

CONNECTIONS = 200
HELD_SECONDS = 20.0
ANSWER_SECONDS = 15.0
"""Far more than an answer takes on a busy machine, far less than a request that waits for a slow one."""
ROUNDS_MIN = 2
LARGE = b"".join(b"main;%0300d 1\n" % number for number in range(10_000))
"""Beyond what is gathered before a thread is used."""
_pushes = itertools.count()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WritePath]:
    with Processes() as processes:
        yield WritePath(tmp_path_factory.mktemp("slow-connections"), processes)


def test_slow_connections_take_no_threads_and_are_closed(path: WritePath) -> None:
    credential = path.credential("poller", "jobs:poll")
    requests = {
        "push": lambda: push(path.address),
        "large push": lambda: push(path.address, LARGE),
        "poll": lambda: poll(path.address, credential),
        **{name: lambda name=name: get(f"{path.address}/{name}") for name in ("healthz", "readyz", "metrics")},
    }
    for request in requests.values():
        request()
    seconds: dict[str, list[float]] = defaultdict(list)
    writer = path.writer.wait_for_line("writer_ready .* address=").split("address=")[1].strip()
    with SlowConnections(path.address, CONNECTIONS) as slow, SlowConnections(writer, 50, (NO_END, NOTHING)) as slow_too:
        until = time.monotonic() + HELD_SECONDS
        threads = [
            threading.Thread(target=repeat, args=(request, until, seconds[name])) for name, request in requests.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    figures = {name: (len(found), sorted(found)[len(found) // 2], max(found)) for name, found in seconds.items()}
    print(f"requests, median and longest seconds: {figures}; closed by the server: {slow.closed_by_server}")
    assert {name: max(found) for name, found in seconds.items() if max(found) > ANSWER_SECONDS} == {}
    assert {name: len(found) for name, found in seconds.items() if len(found) < ROUNDS_MIN} == {}
    # Within 20 s all those whose headers have no end were closed after 10, and opened anew.
    assert slow.closed_by_server >= CONNECTIONS // 5
    assert slow_too.closed_by_server >= 50


def repeat(request: Callable[[], None], until: float, seconds: list[float]) -> None:
    """Send a request again and again; one that fails took for ever."""
    while time.monotonic() < until:
        began = time.monotonic()
        try:
            request()
            seconds.append(time.monotonic() - began)
        except OSError:
            seconds.append(float("inf"))
        time.sleep(0.1)


def get(url: str) -> None:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
        answer.read()


def push(address: str, stacks: bytes = b"main;work 100\n") -> None:
    """Send folded stacks."""
    now = int(time.time())
    url = f"{address}/ingest?name=service.cpu%7B%7D&format=folded&from={now - 10}&until={now}"
    # Of several tenants: one alone would reach its budget.
    post(url, stacks, {"X-Scope-OrgID": f"tenant-{next(_pushes) % 8}"})


def poll(address: str, credential: str) -> None:
    body = {"worker": "node", "build": "test", "capacity": 0, "updates": []}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {credential}"}
    post(f"{address}/api/v1/jobs/poll", json.dumps(body).encode(), headers)


def post(url: str, body: bytes, headers: dict[str, str]) -> None:
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=ANSWER_SECONDS) as answer:
        answer.read()
