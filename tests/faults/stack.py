"""The stack of ``up`` with its supervisor, two instances of redundant processes, and proxies between the processes.

Web processes reach PostgreSQL, and nodes and control the object store, through proxies with traps; nodes reach the web
processes through another. The supervisor restarts killed processes. Each test uses a shard of its own.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from engine.core.checksums import crc32c
from engine.formats.profile_block.container.metadata import decode_metadata, encode_metadata
from engine.formats.profile_block.container.object_names import parse_block_key
from engine.formats.profile_block.model import BlockMeta
from engine.formats.proto import block_list_pb2
from engine.storage import ObjectStore, open_store
from tests.faults.database_proxy import DatabaseProxy, Statement, database_proxy
from tests.faults.http_proxy import HttpProxy, http_proxy
from tests.faults.postgresql import PostgresqlServer, StandbyServer
from tests.faults.preloaded import Disk, WallClock, environments
from tests.faults.samples import Sample, samples_in
from tests.faults.traps import Moment, Trap
from tests.object_stores import S3Server
from tests.processes import ROOT, Processes, answers_http, free_port, wait_until
from tests.segments import make_segment, put_segment
from tests.warm_python import WarmPython
from webadmin.embedded import stack as shipped
from webadmin.embedded.process_log import ProcessLog
from webadmin.embedded.program import Program
from webadmin.embedded.supervisor import Supervisor

OBJECTS_PREFIX = "objects"
"""Prefix of the object store in its bucket; buckets of Prometheus blocks are beside it."""
LEASE_SECONDS = 2
STATEMENT_SECONDS = 5
"""Statement timeout in every process; the default of control, a minute, would be most of a test's time."""
RESTART_SECONDS = 0.1
SETTLE_SECONDS = 90.0
"""Timeout with headroom for a loaded machine."""
LIVE = "('queued', 'owned', 'parked', 'final')"
ROUTINE = re.compile(
    r" (received|succeeded in .*)$|Sending due task|Found credentials|_swept|masked_rewritten|deleted=0"
)
STORY_LINES = 300
WEBS = ("web", "web-2")
NODES = ("compactor", "compactor-2")
CONTROLS = ("control", "control-2")
"""The second one has a home folder of its own, as on another machine."""

PREPARE = """
import django, json, sys
django.setup()
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from tasks import beat
from tasks.lanes.catalog.manifest import SENSE_BRANCHES_TASK
from tasks.lanes.profiles.manifest import DELETE_OBJECTS_TASK, RECOVER_LETTERS_TASK
from tasks.lanes.tables.manifest import PLAN_TABLES_TASK, PUBLISH_TABLES_TASK
from tasks.lanes.tsdb.manifest import PLAN_INTERVALS_TASK, SCAN_BUCKETS_TASK, WRITE_OUTBOXES_TASK
from webadmin.base.access.services import issue_worker_credential
from webadmin.schedule.models import Limits
from webadmin.lanes.profiles.level_models import LevelPolicy
often = (DELETE_OBJECTS_TASK, RECOVER_LETTERS_TASK, SCAN_BUCKETS_TASK, PLAN_INTERVALS_TASK, WRITE_OUTBOXES_TASK,
         SENSE_BRANCHES_TASK, PLAN_TABLES_TASK, PUBLISH_TABLES_TASK)
for job in beat.PERIODIC_JOBS:
    seconds = min(job.every_seconds, 1 if job.task in often else 5)
    interval, _ = IntervalSchedule.objects.get_or_create(every=seconds, period=IntervalSchedule.SECONDS)
    PeriodicTask.objects.create(name=job.name, task=job.task, interval=interval)
Limits.objects.update(lease_seconds=int(sys.argv[1]), cleanup_delay_seconds=0, failures_max=0)
LevelPolicy.objects.update(blocks_max=4, age_seconds=0)
scopes = {"node": ["jobs:poll"], "writer": ["blocks:add"]}
print(json.dumps({name: issue_worker_credential(name=name, scopes=may, actor="test").wire_form
                  for name, may in scopes.items()}))
"""

FRONT_PAGE = """
import django, json
django.setup()
from django.test import RequestFactory
from webadmin.console.pages import front_page
print(json.dumps([notice.text for notice in front_page(RequestFactory().get("/admin/"), {})["notices"]]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Services of the stack: ``store_url`` is the bucket, ``proxied_store_url`` the bucket through its proxy."""

    postgresql: PostgresqlServer | StandbyServer
    database: DatabaseProxy
    store: HttpProxy
    store_url: str
    proxied_store_url: str


class FaultStack:
    """One installation. ``service`` is the proxy of the web processes, ``settings`` are variables of every process."""

    def __init__(self, home: Path, around: Surroundings, settings: Mapping[str, str] | None = None) -> None:
        self.around = around
        self.store: ObjectStore = open_store(around.store_url)
        self.ports = (free_port(), free_port())
        self.service = HttpProxy(*(f"http://127.0.0.1:{port}" for port in self.ports))
        self.log = io.StringIO()
        self._background = ThreadPoolExecutor(1)
        self._shards = 0
        self._home = home
        self.clocks = {name: WallClock(home / "clocks" / name) for name in (WEBS[1], NODES[1], CONTROLS[1])}
        self.scratch_disk = Disk(home / "disk", home / "nodes")
        self._settings = dict(settings or {})
        self._environment = {
            **self._settings,
            "DATABASE_URL": f"postgresql://postgres@127.0.0.1:{around.database.port}/postgres?sslmode=disable",
            "DATABASE_STATEMENT_SECONDS": str(STATEMENT_SECONDS),
            "LITHIFY_HOME": str(home),
            "OBJECT_STORE_URL": around.proxied_store_url,
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
            "PYTHONPATH": str(ROOT),
            "LITHIFY_TOKEN_KEYS": secrets.token_hex(32),
            "SECRET_KEY": secrets.token_hex(32),
        }
        self._parts = ExitStack()
        processes = self._parts.enter_context(Processes(quiet=True))
        python = WarmPython(processes, self._environment)
        prepared = python.run("-c", PREPARE, str(LEASE_SECONDS), seconds=SETTLE_SECONDS)
        python.close()
        self.credentials: dict[str, str] = json.loads(prepared)
        programs = self._programs()
        self.broker_url = programs[-1].environment["BROKER_URL"]
        self._environment["BROKER_URL"] = self.broker_url
        self._python = WarmPython(processes, self._environment)
        log = ProcessLog(self.log, [program.name for program in programs], coloured=False)
        self._supervisor = Supervisor(programs, log, delay=lambda deaths: RESTART_SECONDS)
        self._threads = [
            threading.Thread(target=self.service.serve_forever, args=(0.05,)),
            threading.Thread(target=self._supervisor.watch),
        ]

    def start(self) -> None:
        """Start everything and wait until it is ready."""
        self._threads[0].start()
        assert self._supervisor.start(), self.story()
        self._threads[1].start()

    def stop(self) -> None:
        """Kill everything."""
        for _ in range(2):  # After the second request it does not wait.
            self._supervisor.request_stop()
        self.service.shutdown()
        for thread in self._threads:
            if thread.ident:
                thread.join()
        self._supervisor.stop()
        self._parts.close()
        self.service.server_close()
        self._background.shutdown()
        self.store.close()

    def python(self, *arguments: str) -> str:
        """Run a program with the settings of this installation; return its output."""
        return self._python.run(*arguments, seconds=SETTLE_SECONDS)

    def story(self) -> str:
        """Return the last lines of every program, for the message of a failed test."""
        lines = [line for line in self.log.getvalue().splitlines() if not ROUTINE.search(line)]
        return "\n".join(lines[-STORY_LINES:])

    # Faults.

    def pid(self, name: str) -> int:
        """Return the process id of a program once it runs."""
        wait_until(lambda: name in self._supervisor.pids(), f"{name} runs")
        return self._supervisor.pids()[name]

    def kill(self, name: str) -> None:
        """Kill a program and its children with SIGKILL, and return when they have exited."""
        pid = self.pid(name)
        os.killpg(pid, signal.SIGKILL)
        wait_until(lambda: self._supervisor.pids().get(name) != pid, f"{name} is gone")

    def kill_client(self, trap: Trap[Any], *names: str) -> str:
        """Kill the program whose request is in the trap; return its name, which must be one of ``names``."""
        trap.wait()
        for name in names:
            if trap.client_port in _ports_of(self.pid(name)):
                self.kill(name)
                return name
        raise AssertionError(f"none of {names} holds the connection from port {trap.client_port}")

    @contextmanager
    def frozen(self, *names: str) -> Iterator[None]:
        """Suspend programs within a ``with``, as on a suspended machine."""
        pids = [self.pid(name) for name in names]
        for pid in pids:
            os.killpg(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                os.killpg(pid, signal.SIGCONT)

    @contextmanager
    def after_power_loss(self) -> Iterator[None]:
        """Let PostgreSQL lose power and restart it from its files; inside no other process reaches it."""
        closed: Trap[Statement] = Trap(moment=Moment.BEFORE, matches=lambda _: True, times=1 << 30, holds=False)
        with self.around.database.traps.set(closed):
            self.around.postgresql.lose_power()
            self.around.postgresql.start()
            yield

    def wait_until_named(self, words: str) -> None:
        """Wait until a notice of the front page contains these words."""
        seen: list[str] = []

        def is_named() -> bool:
            said = json.loads(self.python("-c", FRONT_PAGE).splitlines()[-1])
            seen[:] = [text.replace("\xa0", " ") for text in said]
            return any(words in text for text in seen)

        try:
            wait_until(is_named, f"the front page says {words!r}", SETTLE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from None

    def in_background(self, work: Callable[[], None]) -> Future[None]:
        """Run ``work`` in a thread; return its future."""
        return self._background.submit(work)

    # Work and expected results.

    def new_shard(self) -> int:
        """Return an unused shard."""
        self._shards += 1
        return self._shards

    def write_segments(self, shard: int, count: int = 8) -> Counter[Sample]:
        """Write segments into the bucket, register them as a writer does, and return all their samples."""
        segments = self.put_segments(shard, count)
        expected = self.samples(segments)  # Before registration, after which they may be merged and deleted.
        self.register(segments)
        return expected

    def put_segments(self, shard: int, count: int) -> list[tuple[str, BlockMeta]]:
        """Write segments of the last minute into the bucket only."""
        start_ms = round(time.time() * 1000) - 60_000
        found = []
        for number in range(count):
            data, meta = make_segment(start_ms + number * 500, shard=shard, seed=number)
            found.append((put_segment(self.store, data, meta).key, replace(meta, size=len(data))))
        return found

    def register(self, segments: Sequence[tuple[str, BlockMeta]]) -> None:
        """Add segments to the index; retry requests without a response, as a writer must."""
        entries = [block_list_pb2.BlockEntry(metadata=encode_metadata(meta), size=meta.size) for _, meta in segments]
        body = block_list_pb2.BlockMetaList(blocks=entries).SerializeToString()
        headers = {"Authorization": f"Bearer {self.credentials['writer']}", "Content-Type": "application/x-protobuf"}

        def is_added() -> bool:
            try:
                answer = httpx.post(f"{self.service.url}/api/v1/blocks", content=body, headers=headers, timeout=30)
            except httpx.HTTPError:
                return False
            assert answer.status_code == 200 or answer.status_code >= 500, answer.text
            return answer.is_success

        wait_until(is_added, "the segments are registered", SETTLE_SECONDS)

    def samples(self, blocks: Sequence[tuple[str, BlockMeta]]) -> Counter[Sample]:
        """Count the samples of blocks, without the proxy."""
        return samples_in(self.store, blocks)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query, without the proxy."""
        return self.around.postgresql.rows(query, *parameters)

    def wait_until_settled(self, shard: int) -> None:
        """Wait until every live block of the shard is final, every job done, every replaced object deleted."""
        blocks = "SELECT DISTINCT state FROM profiles_block WHERE shard = %s"
        jobs = "SELECT DISTINCT state FROM schedule_job WHERE shard = %s"

        def is_settled() -> bool:
            states = {state for (state,) in self.rows(blocks, shard)}
            return states == {"final", "deleted"} and self.rows(jobs, shard) == [("done",)]

        try:
            wait_until(is_settled, f"shard {shard} is settled", SETTLE_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.situation(shard)}\n{self.story()}") from None

    def situation(self, shard: int) -> str:
        """Return the state of a shard's blocks and jobs."""
        blocks = "SELECT state, level, count(*) FROM profiles_block WHERE shard = %s GROUP BY 1, 2"
        jobs = "SELECT name, state, failures, parked_reason FROM schedule_job WHERE shard = %s AND state <> 'done'"
        queues = "SELECT level, block_count, ready_at_ms, is_marked_ready FROM profiles_levelqueue WHERE shard = %s"
        found = {"blocks": blocks, "jobs": jobs, "queues": queues}
        shown = {name: self.rows(query, shard) for name, query in found.items()}
        workers = self.rows("SELECT name, capacity, last_poll_at::text FROM schedule_worker")
        return f"{shown}, workers {workers}, head {self.rows('SELECT * FROM schedule_loghead')}"

    def check(self, shard: int, expected: Counter[Sample]) -> list[str]:
        """Wait until the shard is settled; assert that no sample is lost or duplicated and that bucket and index agree.

        Returns the keys of the orphans: objects of attempts that were never committed.
        """
        self.wait_until_settled(shard)
        query = (
            f"SELECT object_key, size_bytes, crc32c, metadata FROM profiles_block WHERE shard = %s AND state IN {LIVE}"
        )
        live = {key: (size, checksum, metadata) for key, size, checksum, metadata in self.rows(query, shard)}
        blocks = [(key, replace(decode_metadata(bytes(row[2])), size=row[0])) for key, row in live.items()]
        assert self.samples(blocks) == expected
        found = [info.key for kind in ("segments", "blocks") for info in self.store.list(f"{kind}/{shard}/")]
        assert set(live) <= set(found), "every live block has its object"
        for key, (size, checksum, _) in live.items():
            data = self.store.get(key)
            assert (len(data), crc32c(data)) == (size, checksum), key
        return self._orphans(found, live)

    def _orphans(self, found: Sequence[str], live: dict[str, Any]) -> list[str]:
        orphans = [key for key in found if key not in live]
        for key in orphans:
            named = parse_block_key(key)
            known = self.rows("SELECT state FROM profiles_block WHERE shard = %s AND ulid = %s", named.shard, named.id)
            assert not known, f"{key} was {known} and is still there"
        return orphans

    def attempts(self, shard: int) -> Counter[str]:
        """Count the outcomes of the attempts of the shard's jobs."""
        query = (
            "SELECT outcome, count(*) FROM schedule_attempt a JOIN schedule_job j ON a.job_id = j.id"
            " WHERE shard = %s GROUP BY 1"
        )
        return Counter(dict(self.rows(query, shard)))

    def fsck(self) -> dict[str, int]:
        """Compare bucket and index, including bytes, by the operator's command; return its counts."""
        found = json.loads(self.python("manage.py", "fsck", "--deep", "--json"))
        return dict(found["counts"])

    def _programs(self) -> list[Program]:
        settings = shipped.StackSettings(
            home=self._home,
            web_port=self.ports[0],
            object_store_url=self.around.proxied_store_url,
            worker_credential=self.credentials["node"],
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shipped, "WRITERS", 0)  # The faults of writers have a fleet of their own.
            redis, web, beat, control, node = shipped.describe_stack(settings)
        web, beat, control = (self._with_database(program) for program in (web, beat, control))
        first, second = (self._node(node, name) for name in NODES)
        return [redis, web, self._second_web(web), beat, control, self._second_control(control), first, second]

    def _with_database(self, program: Program) -> Program:
        small = {"GUNICORN_CMD_ARGS": "--workers 1 --threads 4"}
        return replace(program, environment={**program.environment, **self._environment, **small})

    def _second_web(self, web: Program) -> Program:
        here, there = (f"127.0.0.1:{port}" for port in self.ports)
        command = tuple(there if word == here else word for word in web.command)
        assert command != web.command
        return replace(
            web,
            name=WEBS[1],
            command=command,
            environment={**web.environment, **self.clocks[WEBS[1]].environment},
            probe=lambda: answers_http(f"http://{there}/healthz"),
        )

    def _second_control(self, control: Program) -> Program:
        home = self._home / "second-machine"
        home.mkdir()
        own = {
            "LITHIFY_HOME": str(home),
            "TABLES_URL": f"file://{self._home}/tables",
            **self.clocks[CONTROLS[1]].environment,
        }
        command = tuple(word.replace("control@", "control-2@") for word in control.command)
        ready = control.ready_line.replace("control@", "control-2@")
        return replace(
            control, name=CONTROLS[1], command=command, ready_line=ready, environment={**control.environment, **own}
        )

    def _node(self, node: Program, name: str) -> Program:
        own = {
            **self._settings,
            "SERVICE_URL": self.service.url,
            "NODE_NAME": name,
            "NODE_CAPACITY": "2",
            "POLL_SECONDS": "0.1",
            "MERGE_ON": "engine",
            **environments(self.scratch_disk, *(self.clocks[name],) if name in self.clocks else ()),
        }
        return replace(node, name=name, environment={**node.environment, **own})


@contextmanager
def running_stack(
    server: S3Server,
    postgresql: PostgresqlServer | StandbyServer,
    home: Path,
    settings: Mapping[str, str] | None = None,
    *,
    socket_file: str = "",
) -> Iterator[FaultStack]:
    """Run a stack in a new bucket; it reaches database and bucket through proxies.

    ``socket_file`` is where the database is reached first if it is another server's.
    """
    with http_proxy(server.endpoint) as store, database_proxy(socket_file or postgresql.socket_file) as database:
        bucket = server.new_bucket()
        around = Surroundings(
            postgresql=postgresql,
            database=database,
            store=store,
            store_url=server.store_url(bucket, OBJECTS_PREFIX),
            proxied_store_url=S3Server(store.url).store_url(bucket, OBJECTS_PREFIX),
        )
        stack = FaultStack(home, around, settings)
        try:
            stack.start()
            yield stack
        finally:
            stack.stop()


def _ports_of(pid: int) -> set[int]:
    """Return the local ports of the connections of a process and its children."""
    processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return {
        connection.laddr.port
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.raddr
    }
