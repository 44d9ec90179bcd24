"""A service that an operator inherits in a bad state, made by real processes: what ``test_operating.py`` reads.

Profiles, a bucket of a Cortex, two tables and a repository; damaged files in each of them, a killed node, two paused
tenants. ``Moments`` keeps the answers of moments that pass.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import lakefs

from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.proto import block_list_pb2
from engine.storage import open_store
from tasks import beat
from tasks.lanes.catalog.manifest import SENSE_BRANCHES_TASK
from tasks.lanes.profiles.manifest import ISOLATE_TASK, SETTLE_QUEUES_TASK
from tasks.lanes.tables.manifest import PLAN_TABLES_TASK, PUBLISH_TABLES_TASK, SETTLE_TABLES_TASK
from tasks.lanes.tsdb.manifest import PLAN_INTERVALS_TASK, SCAN_BUCKETS_TASK, VERIFY_SOURCES_TASK, WRITE_OUTBOXES_TASK
from tests.e2e.stack import Stack
from tests.faults.preloaded import WallClock
from tests.processes import Process, Processes, paused, wait_until
from tests.segments import make_segment, put_segment
from tests.webadmin.lanes.tables.parquet_files import day, put_hours
from tests.webadmin.lanes.tsdb.fake_bucket import block_id, damage, put_sound_block

LEASE_SECONDS = 2
SETTLE_SECONDS = 90.0
DAMAGED = 48
SEGMENTS = 60
"""In two jobs: after three failed ones merging would be called broken, and nothing be isolated."""
BAD_FILE = "day-001/hour-03.parquet"
BAD_BLOCK = 2
STUCK_SECONDS = 11 * 60
"""Longer than a chunk may be without a task before it counts as stuck."""
PAUSED = ("", "umbrella")
"""Segments, which belong to no tenant yet, and a tenant of the bucket and of a table."""
ROUND = (
    *(SCAN_BUCKETS_TASK, PLAN_INTERVALS_TASK, VERIFY_SOURCES_TASK, WRITE_OUTBOXES_TASK),
    *(ISOLATE_TASK, SETTLE_QUEUES_TASK, SENSE_BRANCHES_TASK, beat.COUNT_LOG_TASK),
)
TABLES_ROUND = (PLAN_TABLES_TASK, SETTLE_TABLES_TASK, PUBLISH_TABLES_TASK)
PASSWORD = "only for this test"
LAG_MS_MIN = 1000 * LEASE_SECONDS + 2000


@dataclass
class Moments:
    """Answers of moments that have passed when the tests begin. Times are unix milliseconds by this process."""

    begun_ms: int = 0
    isolated_ms: int = 0
    lag_ms: int = 0
    chunk: str = ""
    foreseen: int = 0
    created: int = 0
    stuck_blockers: list[dict[str, str]] = field(default_factory=list)
    stuck_page: str = ""
    opened: int = 0


class OperatingScene:
    """One installation in a folder. ``buckets`` and ``lake`` are the stores of others that it compacts."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self.home = home
        self.stack = Stack(home, processes)
        self.moments = Moments(begun_ms=now_ms())
        self.processes = processes
        self.clock = WallClock(home / "clock")
        self.bucket = open_store(f"file://{home}/bucket")
        self.events = open_store(f"file://{home}/events")
        self.logs = open_store(f"file://{home}/logs")
        credential = self.stack.manage(
            "create_worker_credential", "operator", "--scope=operate", "--scope=blocks:add"
        ).strip()
        self.rest = httpx.Client(
            base_url=f"{self.stack.url}/api/v1", headers={"Authorization": f"Bearer {credential}"}, timeout=30
        )
        self.admin = httpx.Client(base_url=self.stack.url, follow_redirects=True, timeout=30)
        self.control = self.stack.start_control()
        self._log_in()

    def close(self) -> None:
        """Close the connections of this process."""
        self.rest.close()
        self.admin.close()
        self.stack.close()

    # What an operator reads.

    def page(self, address: str, **query: str) -> str:
        """Return the text of an admin page without its markup."""
        answer = self.admin.get(address, params=query)
        assert answer.status_code == 200, f"{address}: {answer.status_code}"
        return words(answer.text)

    def get(self, address: str, **query: Any) -> dict[str, Any]:
        """Return the answer of REST."""
        answer = self.rest.get(address, params=query)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def post(self, address: str, **body: Any) -> httpx.Response:
        """Give an order over REST."""
        return self.rest.post(address, json={"why": "maintenance", **body})

    def previewed_limit(self, kind: str, value: str) -> str:
        """Return the text of the form that sets a limit, previewed for this scope."""
        address = "/admin/schedule/limitchange/action/set-limit/"
        self.admin.get(address)
        fields = {"limit": "running_max", "scope_kind": kind, "scope_value": value, "value": "9", "for_seconds": "3600"}
        given = {"step": "preview", "why": "maintenance", "csrfmiddlewaretoken": self.admin.cookies["csrftoken"]}
        return words(self.admin.post(address, data=fields | given).text)

    def row_id(self, table: str, **fields: str) -> int:
        """Return the id of the one row with these fields."""
        where = " AND ".join(f"{name} = ?" for name in fields)
        [(found,)] = self.stack.rows(f"SELECT id FROM {table} WHERE {where}", *fields.values())
        return int(found)

    def blockers(self, url: str = "") -> list[dict[str, str]]:
        """Return what ``/progressz`` says is blocked."""
        headers = {"Authorization": f"Bearer {(self.home / 'metrics_token').read_text().strip()}"}
        return list(httpx.get(f"{url or self.stack.url}/progressz", headers=headers, timeout=30).json()["blockers"])

    # What happens.

    def run_round(self, *tasks: str) -> None:
        """Do what beat does when these tasks are due."""
        for task in tasks:
            self.stack.send_control_task(task)

    def wait_in_rounds(self, condition: Callable[[], object], what: str, tasks: tuple[str, ...] = ROUND) -> None:
        """Let the control worker work until the condition holds."""

        def holds() -> bool:
            self.run_round(*tasks)
            time.sleep(0.5)
            return bool(condition())

        try:
            wait_until(holds, what, SETTLE_SECONDS)
        except AssertionError as error:
            jobs = self.stack.rows("SELECT name, state, failures, parked_kind FROM schedule_job")
            raise AssertionError(f"{error}\n{jobs}\n{self.control.story()}") from None

    def add_segments(self, shard: int, count: int, damaged: int = 0) -> None:
        """Write segments, cut the first ``damaged`` of them off, and register all as a writer does."""
        entries = []
        for number in range(count):
            data, meta = make_segment(now_ms() - 60_000, shard=shard, seed=number)
            key = put_segment(self.stack.store, data, meta).key
            if number < damaged:
                self.stack.store.put(key, data[:200] + bytes(len(data) - 200))
            entries.append(
                block_list_pb2.BlockEntry(metadata=encode_metadata(replace(meta, size=len(data))), size=len(data))
            )
        answer = self.rest.post(
            "/blocks",
            content=block_list_pb2.BlockMetaList(blocks=entries).SerializeToString(),
            headers={"Content-Type": "application/x-protobuf"},
        )
        assert answer.status_code == 200, answer.text

    def start_node(self, poll_seconds: float = 0.1) -> Process:
        """Start a node that merges in its own process."""
        return self.stack.start_node(MERGE_ON="engine", POLL_SECONDS=str(poll_seconds))

    @contextmanager
    def later(self, seconds: int) -> Iterator[str]:
        """Start a web process whose clock is so much later; return its address."""
        with self.clock.stepped(seconds):
            web, url = self.processes.start_web({**self.stack.environment, **self.clock.environment})
            yield url
            web.kill()

    def _log_in(self) -> None:
        operator = ("--noinput", "--username", "operator", "--email", "")
        self.stack.manage("createsuperuser", *operator, DJANGO_SUPERUSER_PASSWORD=PASSWORD)
        self.admin.get("/admin/login/")
        answer = self.admin.post(
            "/admin/login/",
            data={
                "username": "operator",
                "password": PASSWORD,
                "csrfmiddlewaretoken": self.admin.cookies["csrftoken"],
                "next": "/admin/",
            },
        )
        assert answer.url.path == "/admin/", answer.text


def now_ms() -> int:
    """Return the wall time."""
    return time.time_ns() // 1_000_000


def words(page: str) -> str:
    """Return the text of a page without its markup."""
    without = re.sub(r"<(script|style).*?</\1>", " ", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", without)).replace("\xa0", " ").split())


def play(scene: OperatingScene) -> None:
    """Let everything happen that the tests read about."""
    limit(scene, "lease_seconds", LEASE_SECONDS)
    limit(scene, "failures_max", 1)
    scene.stack.change("UPDATE profiles_levelpolicy SET blocks_max = ? WHERE level = 0", SEGMENTS // 2)
    fill_bucket(scene)
    fill_tables(scene)
    fill_repository(scene)
    scene.add_segments(1, SEGMENTS, DAMAGED)
    jobs = "SELECT count(*) FROM schedule_job WHERE lane = 'tsdb' AND tenant = 'umbrella'"
    planning = (SCAN_BUCKETS_TASK, PLAN_INTERVALS_TASK)
    scene.wait_in_rounds(lambda: scene.stack.rows(jobs) != [(0,)], "the bucket is planned", planning)
    pause(scene, "umbrella")
    kill_working_node(scene)
    scene.start_node()
    end_table_task(scene)
    plan_table_again(scene)
    damage_profiles(scene)
    pause(scene, "")
    let_command_time_lag(scene)
    scene.add_segments(2, SEGMENTS // 2)
    for number in (1, 2):
        writer = scene.processes.start_python(
            f"writer-{number}",
            "manage.py",
            "writer",
            "--instance-id",
            f"writer-{number}",
            environment=scene.stack.environment,
        )
        writer.wait_for_line("writer_ready")
    scene.run_round(beat.COUNT_LOG_TASK)
    [(clock_ms, command_ms)] = scene.stack.rows("SELECT clock_ms, command_time_ms FROM schedule_loghead")
    scene.moments.lag_ms = clock_ms - command_ms


def let_command_time_lag(scene: OperatingScene) -> None:
    """Wait without polls: command time stops a lease after the last command; the next one shows the lag."""
    silent_ms = LAG_MS_MIN + 1000 * LEASE_SECONDS
    with paused(scene.stack.node()):
        wait_until(
            lambda: now_ms() - scene.stack.rows("SELECT clock_ms FROM schedule_loghead")[0][0] > silent_ms, "it lags"
        )


def limit(scene: OperatingScene, name: str, value: int) -> None:
    answer = scene.post("/operations/limits", limit=name, value=value)
    assert answer.status_code == 200, answer.text


def pause(scene: OperatingScene, tenant: str) -> None:
    answer = scene.post("/operations/pauses", mode="pause", scope={"kind": "tenant", "value": tenant})
    assert answer.status_code == 200, answer.text


def fill_bucket(scene: OperatingScene) -> None:
    """Four overlapping blocks of each of two tenants, one of ``acme`` damaged; a later block makes them complete."""
    for tenant in ("acme", "umbrella"):
        for number in range(4):
            put_sound_block(scene.bucket, f"{tenant}/", block_id(number))
    damage(scene.bucket, f"acme/{block_id(BAD_BLOCK)}/chunks/000001", 12)
    scene.stack.manage(
        *("tsdb", "adopt", scene.bucket.url, "--layout", "cortex", "--name", "metrics"),
        *("--consistency-delay-seconds", "0"),
    )


def fill_tables(scene: OperatingScene) -> None:
    """Four days of ``acme``, a file of the second damaged once it is registered, and a day of the paused tenant."""
    for number in range(4):
        put_hours(scene.events, number, hours=range(6))
    put_hours(scene.logs, 0, hours=range(6))
    for store, name, tenant in ((scene.events, "events", "acme"), (scene.logs, "logs", "umbrella")):
        scene.stack.manage("tables", "adopt", store.url, "--time-column", "ts", "--tenant", tenant, "--name", name)
    data = bytearray(scene.events.get(BAD_FILE))
    data[4:60] = bytes(56)
    scene.events.put(BAD_FILE, bytes(data))


def fill_repository(scene: OperatingScene) -> None:
    """A commit whose range is damaged, and a branch of it with staged changes that were ordered to be compacted."""
    key = json.loads(scene.stack.manage("catalog", "access-key", "sdk", "--tenant", "acme", "--json"))
    client = lakefs.Client(
        host=f"{scene.stack.url}/lakefs/api/v1", username=key["access_key_id"], password=key["secret_access_key"]
    )
    repository = lakefs.Repository("lake", client=client).create(storage_namespace="local://lake")
    branch = repository.branch("main")
    for name in ("a", "b", "c"):
        branch.object(name).upload(b"1")
    branch.commit("first")
    branch.object("a").upload(b"2")
    branch.object("b").delete()
    for info in list(scene.stack.store.list("catalog/")):
        if "/ranges/" in info.key:
            damage(scene.stack.store, info.key, info.size // 2)
    scene.stack.manage("catalog", "compact", "main", "--repository", "lake", "--tenant", "acme")


def kill_working_node(scene: OperatingScene) -> None:
    """Kill a node that has jobs; another takes them when its lease is over."""
    node = scene.start_node(poll_seconds=1)
    leased = "SELECT count(*) FROM schedule_job WHERE state = 'leased'"
    wait_until(lambda: scene.stack.rows(leased) != [(0,)], "the node has a job")
    node.kill()


def end_table_task(scene: OperatingScene) -> None:
    """Let the one task over all four days end by the damaged file, and keep what is said before it is planned again."""
    tasks = "SELECT task.state FROM tables_task task JOIN tables_datasource t ON t.id = task.source_id"
    own = f"{tasks} WHERE t.name = 'events'"
    scene.run_round(PLAN_TABLES_TASK)
    scene.wait_in_rounds(lambda: scene.stack.rows(own) == [("ended",)], "the task has ended", (SETTLE_TABLES_TASK,))
    seen, of_table = scene.moments, ("--table", "events", "--tenant", "acme")
    seen.chunk = scene.stack.manage("tables", "explain", *of_table, str(day(3)))
    with scene.later(STUCK_SECONDS) as url:
        seen.stuck_blockers = scene.blockers(url)
        seen.stuck_page = words(scene.admin.get(f"{url}/admin/").text)
    seen.foreseen = json.loads(scene.stack.manage("tables", "plan", *of_table, "--dry-run", "--json"))["tasks"]


def plan_table_again(scene: OperatingScene) -> None:
    """Let the controller plan the table again, and nodes work it off."""
    of_table = ("--table", "events", "--tenant", "acme")
    scene.moments.created = json.loads(scene.stack.manage("tables", "plan", *of_table, "--json"))["created"]
    chunks = "SELECT DISTINCT chunk.state FROM tables_chunk chunk JOIN tables_datasource t ON t.id = chunk.source_id"
    own = f"{chunks} WHERE t.name = 'events'"
    scene.wait_in_rounds(lambda: scene.stack.rows(own) == [("stable",)], "the table is compacted", TABLES_ROUND)


def damage_profiles(scene: OperatingScene) -> None:
    """Let isolation run until it stops by itself, and everything else until only what is parked or paused is left."""
    scene.moments.isolated_ms = now_ms()
    open_jobs = "SELECT count(*) FROM schedule_job WHERE state IN ('waiting', 'leased') AND tenant <> 'umbrella'"
    compaction = "SELECT ended_because FROM catalog_compaction"

    def is_over() -> bool:
        return bool(
            scene.get("/operations/isolation")["stops"]
            and scene.stack.rows(open_jobs) == [(0,)]
            and scene.stack.rows(compaction)[0][0]
        )

    scene.wait_in_rounds(is_over, "isolation has stopped")
