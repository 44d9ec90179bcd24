"""Throughput of adding blocks: REST calls of 500 blocks with 4 datasets each, on PostgreSQL, while a worker plans jobs.

Estimate: a call writes 500 block, 2,000 dataset and 500 ledger rows; at 2,000 blocks per second that is 12,000 rows per
second, for which PostgreSQL needs half a core with bulk inserts. Parsing and checking the metadata and building the
rows in Python costs about 200 µs per block, so two web workers are the bottleneck.
"""

from __future__ import annotations

import http.client
import json
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.core import ulids
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.proto import block_list_pb2
from tests.bench.database import embedded_postgresql, manage
from tests.bench.figures import Figures
from tests.block_factory import block_meta
from tests.processes import LOOPBACK, Processes, answers_http, free_port
from webadmin.serving import GUNICORN_SETTINGS

NAME = "index_add"
BLOCKS_PER_CALL = 500
DATASETS_PER_BLOCK = 4
TENANTS, SERVICES, SHARDS = 20, 10, 8
WEB_WORKERS = SENDERS = 2
CALLS, CALLS_FULL, CALLS_BEFORE = 40, 400, 4
POLL_SECONDS = 0.5

SCOPES = """
from webadmin.base.access.services import issue_worker_credential
print(issue_worker_credential(name="bench", scopes=["blocks:add", "jobs:poll"], actor="bench").wire_form)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The tested service and its credential."""

    url: str
    credential: str

    def post(self, path: str, body: bytes, content_type: str) -> dict:
        """Send one call on its own connection. Raises AssertionError unless it succeeds."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        headers = {"Authorization": f"Bearer {self.credential}", "Content-Type": content_type}
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        assert answer.status == 200, f"{path}: {answer.status} {content[:500]!r}"
        return json.loads(content)


def run(full: bool) -> Figures:
    """Send all calls from two senders and compute the rate."""
    calls = CALLS_FULL if full else CALLS
    with (
        embedded_postgresql() as database,
        tempfile.TemporaryDirectory(prefix="lithify-bench-") as home,
        Processes(quiet=True) as processes,
    ):
        environment = {"LITHIFY_HOME": home, "DATABASE_URL": database, "LOG_LEVEL": "WARNING"}
        manage(environment, "migrate", "--verbosity", "0")
        credential = manage(environment, "shell", "--no-imports", "-c", SCOPES).strip()
        web = Web(url=_start_web(processes, environment), credential=credential)
        bodies = [_body(call) for call in range(calls + CALLS_BEFORE)]
        for body in bodies[:CALLS_BEFORE]:
            _add(web, body)
        stop, polls = threading.Event(), []
        planner = threading.Thread(target=_plan, args=(web, stop, polls))
        planner.start()
        started = time.perf_counter()
        with ThreadPoolExecutor(SENDERS) as senders:
            latencies = sorted(senders.map(lambda body: _add(web, body), bodies[CALLS_BEFORE:]))
        seconds = time.perf_counter() - started
        stop.set()
        planner.join()
    return Figures(
        parameters={
            "calls": calls,
            "blocks_per_call": BLOCKS_PER_CALL,
            "datasets_per_block": DATASETS_PER_BLOCK,
            "senders": SENDERS,
            "web_workers": WEB_WORKERS,
            "jobs_planned_meanwhile": sum(polls),
        },
        figures={
            "blocks_per_s": calls * BLOCKS_PER_CALL / seconds,
            "call_p50_ms": latencies[len(latencies) // 2] * 1000,
            "call_p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
        },
    )


def _start_web(processes: Processes, environment: dict[str, str]) -> str:
    port = free_port()
    web = processes.start_python(
        "web",
        *("-m", "gunicorn", "--config", GUNICORN_SETTINGS, "--bind", f"{LOOPBACK}:{port}"),
        *("--workers", str(WEB_WORKERS), "--threads", "2"),
        environment=environment,
    )
    processes.wait_until_answers(web, lambda: answers_http(f"http://{LOOPBACK}:{port}/healthz"))
    return f"http://{LOOPBACK}:{port}"


def _body(call: int) -> bytes:
    """Return one call's list: new segments, each with datasets of two tenants."""
    now_ms = int(time.time() * 1000)
    entries = []
    for number in range(call * BLOCKS_PER_CALL, (call + 1) * BLOCKS_PER_CALL):
        datasets = [
            (f"tenant-{(number + place // 2) % TENANTS}", f"service-{(number + place) % SERVICES}")
            for place in range(DATASETS_PER_BLOCK)
        ]
        block_id = ulids.make(now_ms - number % 1000, number.to_bytes(10, "big"))
        meta = block_meta(block_id, shard=1 + number % SHARDS, datasets=datasets)
        entries.append(block_list_pb2.BlockEntry(metadata=encode_metadata(meta), size=meta.size, crc32c=number))
    return block_list_pb2.BlockMetaList(blocks=entries).SerializeToString()


def _add(web: Web, body: bytes) -> float:
    """Send one list; return its latency in seconds."""
    started = time.perf_counter()
    answer = web.post("/api/v1/blocks", body, "application/x-protobuf")
    seconds = time.perf_counter() - started
    assert all(block["status"] == "accepted" for block in answer["blocks"]), answer["blocks"][0]
    return seconds


def _plan(web: Web, stop: threading.Event, polls: list[int]) -> None:
    """Poll as a worker of eight cores that completes no job."""
    body = json.dumps({"worker": "bench", "build": "bench", "capacity": 8, "updates": []}).encode()
    while not stop.wait(POLL_SECONDS):
        polls.append(len(web.post("/api/v1/jobs/poll", body, "application/json")["assignments"]))
