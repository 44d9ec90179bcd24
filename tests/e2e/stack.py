"""The whole of Lithify as real processes: web under gunicorn, a Redis, Celery nodes with Spark, SQLite, a folder.

What the tests want to know of the index they read from the database file; what they change is what an operator edits.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from celery import Celery

from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.model import BlockMeta
from engine.storage import ObjectStore, open_store
from tasks.app import configure
from tasks.beat import CONTROL_QUEUE
from tests.migrated import put_sqlite
from tests.processes import Process, Processes, wait_until
from tests.warm_python import WarmPython

NODE_READY_SECONDS = 180.0
"""A busy machine needs a minute for the JVM and the first Python workers."""
COMMAND_SECONDS = 180.0
LIVE = "('queued', 'owned', 'parked', 'final')"


class Stack:
    """One installation in a folder of its own; ``node`` starts or returns the node that runs now."""

    def __init__(self, home: Path, processes: Processes) -> None:
        self._processes = processes
        self._nodes: list[Process] = []
        _, broker_url = processes.start_redis()
        self._sender = Celery("tests", fixups=(), set_as_current=False)
        configure(self._sender, broker_url)
        self.store_url = f"file://{home}/objects"
        self.store: ObjectStore = open_store(self.store_url)
        self.database = home / "lithify.sqlite3"
        self.environment = {
            "LITHIFY_HOME": str(home),
            "DATABASE_URL": f"sqlite:///{self.database}",
            "BROKER_URL": broker_url,
            "OBJECT_STORE_URL": self.store_url,
            "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        }
        put_sqlite(self.database)
        self._python = WarmPython(processes, self.environment)
        self.credential = self.manage("create_worker_credential", "tests").strip()
        self.web, self.url = processes.start_web(self.environment)

    def manage(self, *arguments: str, **environment: str) -> str:
        """Run an operator's command and return what it printed."""
        return self._python.run("manage.py", *arguments, seconds=COMMAND_SECONDS, **environment)

    def node(self) -> Process:
        """Return the running node, ready for work; a new one if there is none."""
        running = [node for node in self._nodes if node.is_running()]
        return running[0] if running else self.start_node()

    def start_node(self, **settings: str) -> Process:
        """Start a node with Spark on two cores and wait until it takes work."""
        name = f"node-{len(self._nodes) + 1}"
        environment = {
            **self.environment,
            "SERVICE_URL": self.url,
            "WORKER_CREDENTIAL": self.credential,
            "SPARK_MASTER": "local[2]",
            "NODE_CAPACITY": "2",
            "NODE_NAME": name,
            "POLL_SECONDS": "0.2",
            **settings,
        }
        del environment["DATABASE_URL"]
        node = self._processes.start_python(name, "-m", "tasks.compactor", environment=environment)
        self._nodes.append(node)
        node.wait_for_line('"node_ready"', NODE_READY_SECONDS)
        return node

    def start_control(self) -> Process:
        """Start a worker for control tasks and wait until it is ready."""
        celery = ("-m", "celery", "-A", "tasks.beat", "worker", "--loglevel", "INFO", "--hostname", "control@%h")
        control = self._processes.start_python("control", *celery, environment=self.environment)
        control.wait_for_line(r"control@\S+ ready")
        return control

    def send_control_task(self, name: str) -> None:
        """Do what beat does when a task is due."""
        self._sender.send_task(name, queue=CONTROL_QUEUE, ignore_result=True)

    def close(self) -> None:
        """Close what this process holds."""
        self._sender.pool.force_close_all()
        self._sender.close()

    def set_policy(self, *, blocks_max: int, age_seconds: int, lease_seconds: int) -> None:
        """Edit limits and level policies, as an operator would."""
        self.change("UPDATE profiles_levelpolicy SET blocks_max = ?, age_seconds = ?", blocks_max, age_seconds)
        self.change("UPDATE schedule_limits SET lease_seconds = ?", lease_seconds)

    def change(self, statement: str, *parameters: Any) -> None:
        """Change the database."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=10)) as connection, connection:
            connection.execute(statement, parameters)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Read the database."""
        with contextlib.closing(sqlite3.connect(self.database, timeout=10)) as connection:
            return connection.execute(query, parameters).fetchall()

    def live_blocks(self, shard: int) -> list[tuple[str, BlockMeta]]:
        """Key and metadata of the blocks that queries read."""
        found = self.rows(
            f"SELECT object_key, metadata, size_bytes FROM profiles_block WHERE shard = ? AND state IN {LIVE}", shard
        )
        return [(key, replace(decode_metadata(bytes(metadata)), size=size)) for key, metadata, size in found]

    def jobs(self, shard: int) -> list[tuple[str, int]]:
        """State and failures of the shard's jobs, the oldest first."""
        return self.rows("SELECT state, failures FROM schedule_job WHERE shard = ? ORDER BY id", shard)

    def attempts(self, shard: int) -> Sequence[tuple[str, dict[str, Any] | None]]:
        """Outcome and reason of every run of the shard's jobs, the oldest first."""
        found = self.rows(
            "SELECT outcome, reason FROM schedule_attempt WHERE job_id IN"
            " (SELECT id FROM schedule_job WHERE shard = ?) ORDER BY id",
            shard,
        )
        return [(outcome, json.loads(reason) if reason else None) for outcome, reason in found]

    def wait_for_fix_point(self, shard: int, seconds: float = 60.0) -> None:
        """Wait until every live block of the shard is final."""
        states = f"SELECT count(*) FROM profiles_block WHERE shard = ? AND state IN {LIVE} AND state <> 'final'"
        wait_until(lambda: self.rows(states, shard)[0][0] == 0, f"shard {shard} is compacted", seconds)


class BlockedObject:
    """Replaces an object of a local folder by a pipe without a writer: readers hang until ``release``."""

    def __init__(self, store_url: str, key: str) -> None:
        self._path = Path(store_url.removeprefix("file://")) / key
        self._data = self._path.read_bytes()
        self._path.unlink()
        os.mkfifo(self._path)

    def release(self) -> None:
        """Put the object back; hanging readers get an empty object and fail."""
        whole = self._path.with_name("whole")
        whole.write_bytes(self._data)
        with contextlib.suppress(OSError):  # nobody hangs
            os.close(os.open(self._path, os.O_WRONLY | os.O_NONBLOCK))
        whole.replace(self._path)
