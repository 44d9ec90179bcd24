"""The programs of Lithify on one machine, in start order.

Redis, segment writers and web, then beat, control and compactor. The compactor starts last and so stops first: it
returns its jobs while the service still responds. The writers stop after web, which sends them pushes.
"""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.settings.base import is_set
from webadmin.embedded.addresses import LOOPBACK, answers_http, answers_redis, free_port
from webadmin.embedded.embedded_redis import redis_command
from webadmin.embedded.program import Program
from webadmin.serving import GUNICORN_SETTINGS

WRITERS = 2  # One can be restarted without rejected pushes.
SPARK_START_SECONDS = 180  # The first start of a JVM on a slow disk.
SERVICE_SECRETS = ("DATABASE_URL", "SECRET_KEY", "LITHIFY_TOKEN_KEYS")
"""Variables to remove from a compactor node's environment: it has no database and signs nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSettings:
    """Settings of a stack. ``broker_url`` is "" if the stack runs its own Redis."""

    home: Path
    web_port: int
    object_store_url: str
    worker_credential: str
    broker_url: str = ""

    @property
    def address(self) -> str:
        """Return the URL of the web process."""
        return f"http://{LOOPBACK}:{self.web_port}"


def describe_stack(settings: StackSettings) -> list[Program]:
    """Return the programs of the stack; write the configuration of its own Redis, if any."""
    broker_url, programs = settings.broker_url, []
    if not broker_url:
        redis, broker_url = _redis(settings.home / "redis")
        programs.append(redis)
    shared = {
        "LITHIFY_HOME": str(settings.home),
        "BROKER_URL": broker_url,
        "OBJECT_STORE_URL": settings.object_store_url,
        "DJANGO_SETTINGS_MODULE": "webadmin.settings",
        "PYTHONUNBUFFERED": "1",
    }
    return [
        *programs,
        *(_writer(number, shared) for number in range(1, WRITERS + 1)),
        _web(settings.web_port, shared),
        _beat(shared),
        _control(shared),
        _compactor(settings, shared),
    ]


def _redis(folder: Path) -> tuple[Program, str]:
    """Return a Redis without persistence and its URL. Its messages can be lost: the database has the state."""
    folder.mkdir(parents=True, exist_ok=True)
    port, password = free_port(), secrets.token_urlsafe(24)
    program = Program(
        name="redis",
        command=redis_command(folder, port=port, password=password),
        probe=lambda: answers_redis(port, password),
    )
    return program, f"redis://:{password}@{LOOPBACK}:{port}/0"


def _writer(number: int, shared: dict[str, str]) -> Program:
    name = f"writer-{number}"
    place = ("--port", str(free_port()), "--instance-id", name)
    return Program(
        name=name,
        command=(sys.executable, "-m", "django", "writer", *place),
        environment=shared,
        ready_line="writer_ready",
        waits=False,
    )


def _web(port: int, shared: dict[str, str]) -> Program:
    gunicorn = (sys.executable, "-m", "gunicorn", "--config", GUNICORN_SETTINGS)
    return Program(
        name="web",
        command=(*gunicorn, "--bind", f"{LOOPBACK}:{port}"),
        environment=shared,
        probe=lambda: answers_http(port, "/healthz"),
        waits=False,
    )


def _beat(shared: dict[str, str]) -> Program:
    return Program(
        name="beat",
        command=(*_celery("tasks.beat"), "beat", "--loglevel", "INFO", "--pidfile="),
        environment=shared,
        ready_line="beat: Starting",
    )


def _control(shared: dict[str, str]) -> Program:
    log, alone = ("--loglevel", "INFO"), ("--without-mingle", "--without-gossip")
    return Program(
        name="control",
        command=(*_celery("tasks.beat"), "worker", *log, *alone, "--hostname", "control@%h"),
        environment=shared,
        ready_line=r"control@\S+ ready",
        waits=False,
    )


def _compactor(settings: StackSettings, shared: dict[str, str]) -> Program:
    own = {"SERVICE_URL": settings.address, "WORKER_CREDENTIAL": settings.worker_credential}
    if not (is_set("SPARK_MASTER") or is_set("SPARK_REMOTE")):
        own["SPARK_LOCAL_IP"] = LOOPBACK  # Spark inside the node listens on loopback only.
    return Program(
        name="compactor",
        command=(sys.executable, "-m", "tasks.compactor"),
        environment=shared | own,
        without=SERVICE_SECRETS,
        ready_line="node_ready",
        waits=False,
        ready_seconds=SPARK_START_SECONDS,
        stop_seconds=45,
    )


def _celery(app: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "-A", app, "--quiet")
