"""A node as it really runs: a Celery process, a real Redis, HTTP to a scripted service, merges in the engine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from celery import Celery

from engine.lanes.profiles.jobs import ProfileMergeResult
from engine.storage import ObjectStore, open_store
from tasks.app import configure
from tasks.control.wake_ups import wake_nodes
from tasks.queues import MERGE_TASK
from tests.processes import Process, Processes, free_port
from tests.segments import segment_job
from tests.tasks.http_schedule import CREDENTIAL, HttpSchedule

pytestmark = pytest.mark.stack

NODE = ("-m", "tasks.compactor")
DYING_NODE = (
    "-c",
    """
import sys
from tasks import compactor, engine_merger, errors

def merge(*_, **__):
    raise errors.MergerDied("Spark is gone")

engine_merger.EngineMerger.merge = merge
sys.exit(compactor.main())
""",
)


class Site:
    """A folder, a store, a scripted service, a broker; nodes are started as needed."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self.home = home
        self.processes = processes
        self.schedule = HttpSchedule()
        self.store_url = f"file://{home}/objects"
        self.store: ObjectStore = open_store(self.store_url)
        self.redis_port = free_port()
        self.broker_url = f"redis://127.0.0.1:{self.redis_port}/0"
        self.app = Celery("test", fixups=(), set_as_current=False)
        configure(self.app, self.broker_url)

    def start_broker(self) -> None:
        self.processes.start_redis(self.redis_port)

    def start_node(self, name: str = "sand", program: Sequence[str] = NODE, **settings: str) -> Process:
        environment = {
            "LITHIFY_HOME": str(self.home),
            "SERVICE_URL": self.schedule.url,
            "WORKER_CREDENTIAL": CREDENTIAL,
            "BROKER_URL": self.broker_url,
            "OBJECT_STORE_URL": self.store_url,
            "NODE_NAME": name,
            "NODE_CAPACITY": "2",
            "POLL_SECONDS": "0.1",
            "MERGE_ON": "engine",
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        }
        return self.processes.start_python(f"node-{name}", *program, environment={**environment, **settings})

    def send(self, task: str, args: list[object], queue: str) -> None:
        self.app.send_task(task, args=args, queue=queue, ignore_result=True)

    def close(self) -> None:
        self.schedule.close()
        self.app.pool.force_close_all()
        self.app.close()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Processes() as processes:
        site = Site(tmp_path, processes)
        yield site
    site.close()


def test_a_job_goes_from_poll_to_result_through_the_broker(site: Site) -> None:
    site.start_broker()
    spec = segment_job(site.store, "job-a", 7)
    pair = site.schedule.offer_spec(spec)
    node = site.start_node()
    site.schedule.wait_for(lambda: site.schedule.results)
    result = ProfileMergeResult.from_json(site.schedule.results[pair] or {})
    assert result.sources == tuple(source.id for source in spec.sources)
    assert [len(site.store.get(block.key)) for block in result.blocks] == [block.size for block in result.blocks]
    assert len(result.blocks) == 2, "one block per tenant"
    assert node.terminate() == 0
    assert not (site.home / "nodes" / "sand" / "scratch").exists()


def test_a_message_sent_three_times_to_a_running_node_merges_nothing_again(site: Site) -> None:
    site.start_broker()
    pair = site.schedule.offer_spec(segment_job(site.store, "job-a", 7))
    node = site.start_node()
    site.schedule.wait_for(lambda: site.schedule.results)
    before = [info.key for info in site.store.list()]
    for _ in range(3):
        site.send(MERGE_TASK, [[list(pair)]], "compactor.sand")
    second = site.schedule.offer_spec(segment_job(site.store, "job-b", 8))
    site.schedule.wait_for(lambda: second in site.schedule.results)
    started = [line for line in node.lines if '"job_started"' in line]
    assert len(started) == 2
    assert set(before) <= {info.key for info in site.store.list()}


def test_a_node_polls_while_its_broker_is_away_and_works_when_it_is_back(site: Site) -> None:
    node = site.start_node()
    site.schedule.wait_for_polls(3)
    site.schedule.wait_for(lambda: site.schedule.requests[-1].capacity)
    pair = site.schedule.offer_spec(segment_job(site.store, "job-a", 7))
    site.schedule.wait_for(lambda: site.schedule.released)
    assert site.schedule.released[0].reason is None, "no failure is counted for a broker that is away"
    site.schedule.wait_for_polls(2)
    assert site.schedule.requests[-1].capacity == 0
    site.start_broker()
    site.schedule.offer(pair)
    site.schedule.wait_for(lambda: pair in site.schedule.results)
    node.wait_for_line("broker_reconnected")


def test_a_wake_up_in_the_shared_queue_makes_a_sleeping_node_poll(site: Site) -> None:
    site.start_broker()
    site.start_node(POLL_SECONDS="60")
    site.schedule.wait_for(lambda: site.schedule.requests and site.schedule.requests[-1].capacity)
    pair = site.schedule.offer_spec(segment_job(site.store, "job-a", 7))
    wake_nodes(site.app, 1)
    site.schedule.wait_for(lambda: pair in site.schedule.results)


def test_a_terminated_node_gives_its_waiting_jobs_back_and_leaves(site: Site) -> None:
    node = site.start_node()
    site.schedule.wait_for(lambda: site.schedule.requests)
    assert node.terminate() == 0
    assert any('"node_stopped"' in line for line in node.lines)


def test_a_node_whose_spark_died_gives_its_job_back_and_ends_with_a_failure(site: Site) -> None:
    site.start_broker()
    site.schedule.offer_spec(segment_job(site.store, "job-a", 7))
    node = site.start_node(program=DYING_NODE)
    assert node.wait(30) == 1, "a supervisor starts a failed program again"
    (update,) = site.schedule.released
    assert update.reason is not None
    assert update.reason.error_class == "MergerDied"


def test_two_nodes_never_share_a_name(site: Site) -> None:
    first = site.start_node(NODE_NAME="")
    site.schedule.wait_for(lambda: site.schedule.requests)
    site.start_node(NODE_NAME="")
    site.schedule.wait_for(lambda: len({request.worker for request in site.schedule.requests}) == 2)
    taken = site.start_node(NODE_NAME=site.schedule.requests[0].worker)
    assert taken.wait(30) != 0
    assert any("choose another NODE_NAME" in line for line in taken.lines)
    assert first.is_running()


def test_a_node_without_a_credential_ends_with_advice(site: Site) -> None:
    node = site.start_node(WORKER_CREDENTIAL="")
    assert node.wait(30) == 2
    assert "create_worker_credential" in node.lines[-1]


def test_the_node_imports_neither_django_nor_the_web_application() -> None:
    program = (
        "import sys, tasks.compactor, tasks.messages, tasks.bootsteps, tasks.engine_merger, tasks.spark_merger\n"
        "tasks.compactor.app.loader.import_default_modules()\n"
        # Kombu looks for django.utils to encode its lazy strings; settings, models and databases stay away.
        "banned = ('django.conf', 'django.apps', 'django.db', 'webadmin', 'psycopg', 'sqlite3', 'pandas')\n"
        "found = [name for name in sys.modules if name.startswith(banned)]\n"
        "sys.exit(str(found) if found else 0)\n"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "webadmin.settings"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
