"""Fifty questions at once through a real web process: within its memory, refused or ended cleanly when that cannot be.

A store that hangs is a named pipe where an object was: readers wait until the test puts the object
back.
"""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from engine.core import ulids
from engine.formats.pprof.pprof_build import Frame, ProfileBuilder
from engine.formats.profile_block.container.object_names import block_key
from engine.ingest.segments.segment import SegmentBuilder
from engine.storage import open_store
from tests.e2e.write_path import manage
from tests.faults.stalling_proxy import stalling_proxy
from tests.migrated import put_sqlite
from tests.object_stores import S3Server
from tests.processes import Process, Processes, answers_http, wait_until

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("many_questions")]

QUESTIONS = 50
BLOCKS, SAMPLES, DEPTH = 3, 1200, 30
START_MS = 1_700_000_000_000
TYPE = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
BUDGET = 64 << 20
AT_ONCE = 2
"""So many of these questions have room in it: by the sizes of the blocks one is expected to take 23 MiB."""
OTHERWISE = 48 << 20
"""What threads, sockets and the allocator may add to it. Without a budget the fifty take 290 MiB."""
ANSWER_SECONDS = 240.0


@dataclass(frozen=True)
class Stored:
    """An installation's folder with stacks that take much more memory than room in a block."""

    home: Path
    keys: list[str]
    secret: str
    total: int

    def environment(self, **settings: Any) -> dict[str, str]:
        return _environment(self.home) | {name: str(value) for name, value in settings.items()}


def _environment(home: Path) -> dict[str, str]:
    return {
        "LITHIFY_HOME": str(home),
        "DATABASE_URL": f"sqlite:///{home}/lithify.sqlite3",
        "OBJECT_STORE_URL": f"file://{home}/objects",
        "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        "QUERY_LENGTH_SECONDS": "0",
        "QUERY_CACHE_BYTES": str(1 << 20),
    }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    home = tmp_path_factory.mktemp("many_questions")
    store = open_store(f"file://{home}/objects")
    chance, keys, total = random.Random(7), [], 0
    frames = [Frame(f"package.function_{n}", f"file_{n % 9}.py", n, n) for n in range(300)]
    for number in range(BLOCKS):
        builder = ProfileBuilder([("cpu", "nanoseconds")], period_type=("cpu", "nanoseconds"), period=10**7)
        for _ in range(SAMPLES):
            value = chance.randint(1, 9)
            builder.add([chance.choice(frames) for _ in range(DEPTH)], [value])
            total += value
        time_ms = START_MS + number * 1000
        segment = SegmentBuilder(1, created_by="tests")
        labels = {"__name__": "process_cpu", "service_name": "web"}
        segment.add("quarry", labels, builder.profile(time_ns=time_ms * 10**6, duration_ns=10**9))
        data, meta = segment.build(ulids.make(time_ms, chance.randbytes(ulids.ENTROPY_BYTES)))
        keys.append(block_key(meta.shard, "", 0, meta.id))
        store.put(keys[-1], data)
    environment = _environment(home)
    put_sqlite(home / "lithify.sqlite3")
    manage(environment, "import_blocks")
    scopes = ("--scope=profiles:query", "--scope=tenant:quarry")
    secret = manage(environment, "create_worker_credential", "viewer", *scopes).strip()
    return Stored(home, keys, secret, total)


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as found:
        yield found


def body(**fields: Any) -> bytes:
    asked = {"profile_typeID": TYPE, "label_selector": "{}", "start": START_MS, "end": START_MS + 60_000, **fields}
    return json.dumps(asked).encode()


def send(stored: Stored, address: str, **headers: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=ANSWER_SECONDS)
    sent = {"Authorization": f"Bearer {stored.secret}", "Content-Type": "application/json", **headers}
    path = "/querier.v1.QuerierService/SelectMergeStacktraces"
    connection.request("POST", path, body(maxNodes=50_000), sent)
    return connection


def ask(stored: Stored, address: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and body of an answer."""
    connection = send(stored, address, **headers)
    try:
        answer = connection.getresponse()
        return answer.status, {name.title(): value for name, value in answer.headers.items()}, json.loads(answer.read())
    finally:
        connection.close()


def ask_at_once(stored: Stored, address: str, **headers: str) -> list[tuple[int, dict[str, str], Any]]:
    together = threading.Barrier(QUESTIONS)

    def one(_: int) -> tuple[int, dict[str, str], Any]:
        together.wait(ANSWER_SECONDS)
        status, said, found = ask(stored, address, **headers)
        return status, said, found if status != 200 else int(found["flamegraph"]["total"])

    with ThreadPoolExecutor(QUESTIONS) as people:
        return list(people.map(one, range(QUESTIONS)))


class Peak:
    """The most memory that the process behind a server had since the last ``forget``."""

    def __init__(self, web: Process) -> None:
        [worker] = psutil.Process(web.pid).children()
        self._folder = Path(f"/proc/{worker.pid}")

    def forget(self) -> int:
        """Begin again; return what the process has now."""
        (self._folder / "clear_refs").write_text("5")
        return self._read("VmRSS")

    def bytes(self) -> int:
        return self._read("VmHWM")

    def _read(self, name: str) -> int:
        [line] = [line for line in (self._folder / "status").read_text().splitlines() if line.startswith(name + ":")]
        return int(line.split()[1]) << 10


def test_fifty_questions_at_once_take_little_more_memory_than_their_budget(
    stored: Stored, processes: Processes
) -> None:
    environment = stored.environment(
        QUERY_MEMORY_BYTES=BUDGET,
        QUERY_WAITING=QUESTIONS,
        QUERY_WAIT_SECONDS=ANSWER_SECONDS,
        QUERY_SECONDS=ANSWER_SECONDS,
    )
    web, address = processes.start_web(environment, threads=QUESTIONS + 5)
    assert ask(stored, address)[0] == 200
    peak = Peak(web)
    before = peak.forget()
    found = ask_at_once(stored, address)
    assert [(status, total) for status, _, total in found] == [(200, stored.total)] * QUESTIONS
    grown = peak.bytes() - before
    print(f"one question and then fifty: {before >> 20} MiB, then {grown >> 20} MiB more at most")
    assert grown < BUDGET + OTHERWISE


@dataclass(frozen=True, slots=True)
class Hanging:
    """A store with the same objects, which answers no read of the first one before ``release``."""

    url: str
    release: threading.Event


@pytest.fixture
def hanging(stored: Stored, s3_credentials: None, s3_server: S3Server) -> Iterator[Hanging]:
    bucket = s3_server.new_bucket()
    with closing(open_store(s3_server.store_url(bucket))) as store:
        for key in stored.keys:
            store.put(key, (stored.home / "objects" / key).read_bytes())
    with stalling_proxy(s3_server.endpoint, stored.keys[0]) as proxy:
        yield Hanging(S3Server(proxy.endpoint).store_url(bucket), proxy.release)


def test_questions_to_a_store_that_hangs_end_at_their_deadline_and_leave_nothing(
    stored: Stored, processes: Processes, hanging: Hanging
) -> None:
    environment = stored.environment(OBJECT_STORE_URL=hanging.url, QUERY_WAITING=QUESTIONS)
    _, address = processes.start_web(environment, threads=QUESTIONS + 5)
    found = ask_at_once(stored, address, **{"Connect-Timeout-Ms": "3000"})
    assert [status for status, _, _ in found] == [504] * QUESTIONS, found
    assert {said["code"] for _, _, said in found} == {"deadline_exceeded"}
    assert answers_http(f"{address}/healthz")
    hanging.release.set()
    status, said, answer = ask(stored, address)
    assert (status, int(answer["flamegraph"]["total"])) == (200, stored.total)
    assert "Lithify-Partial" not in said


def test_queries_without_room_are_rejected_with_retry_after(
    stored: Stored, processes: Processes, hanging: Hanging
) -> None:
    limits = {"QUERY_MEMORY_BYTES": BUDGET, "QUERY_WAITING": 3, "QUERY_WAIT_SECONDS": ANSWER_SECONDS}
    environment = stored.environment(OBJECT_STORE_URL=hanging.url, **limits)
    _, address = processes.start_web(environment, threads=QUESTIONS + 5)
    staying_max = AT_ONCE + 1 + 3  # at work, at their turn, behind it
    staying_min = 1 + 3  # what one at work is charged grows with the symbols it may decode
    with ThreadPoolExecutor(QUESTIONS) as people:
        asked = [people.submit(ask, stored, address) for _ in range(QUESTIONS)]
        wait_until(lambda: sum(one.done() for one in asked) >= QUESTIONS - staying_max, "the others are answered")
        refused = [one.result() for one in asked if one.done()]
        assert Counter((status, said["code"]) for status, _, said in refused) == {(503, "unavailable"): len(refused)}
        for _, headers, said in refused:
            assert (headers["Lithify-Reason"], headers["Retry-After"]) == ("query_busy", "5")
            assert said["message"] == "too many questions at once: ask again in 5 s"
        assert answers_http(f"{address}/healthz")
        hanging.release.set()
    ended = Counter(one.result()[0] for one in asked)
    assert ended[503] + ended[200] == QUESTIONS
    assert staying_min <= ended[200] <= staying_max


def test_questions_of_clients_that_have_left_stop(stored: Stored, processes: Processes, hanging: Hanging) -> None:
    environment = stored.environment(OBJECT_STORE_URL=hanging.url, QUERY_WAITING=QUESTIONS)
    web, address = processes.start_web(environment, threads=QUESTIONS + 5)
    for connection in [send(stored, address) for _ in range(QUESTIONS)]:
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()
    web.wait_for_line("question_abandoned|client_left_early", count=QUESTIONS)
    assert answers_http(f"{address}/healthz")
    hanging.release.set()
    assert ask(stored, address)[0] == 200
