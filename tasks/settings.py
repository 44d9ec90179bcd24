"""Settings of a compactor node, read from the environment; it needs no database and no Django.

SERVICE_URL           URL of the web process (default ``http://127.0.0.1:8000``)
WORKER_CREDENTIAL     output of ``manage.py create_worker_credential`` (required)
BROKER_URL            the Celery broker (default: Redis on this machine)
OBJECT_STORE_URL      ``file://…`` or ``s3://…`` (default: a folder in LITHIFY_HOME)
LITHIFY_HOME          folder for scratch files (default ``.lithify``)
NODE_NAME             name of the worker (default: the host name, numbered when several nodes share a home)
NODE_CAPACITY         maximum of concurrent jobs (default: logical cores)
NODE_MEMORY_BYTES     memory for merges, bytes (default: half of the memory of the machine)
POLL_SECONDS          seconds between polls without events (default 1)
MERGE_ON              ``spark`` (default) or ``engine``: in this process, for machines without Java
LOG_LEVEL             log level of the node (default INFO)

Spark's own settings (``SPARK_MASTER``, ``SPARK_REMOTE``, ``SPARK_ARCHIVE``, ``SPARK_SECRET_FILE``,
``ALLOW_INSECURE_SPARK``) are read by ``spark.session``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.storage import resolve_links
from tasks.errors import BadSetting

DEFAULT_SERVICE_URL = "http://127.0.0.1:8000"
DEFAULT_BROKER_URL = "redis://127.0.0.1:6379/0"
MEMORY_SHARE = 0.5
"""Share of the memory of the machine for merges; the rest is for Spark, the system and the page cache."""
CAPACITY_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """See the module's docstring; sizes in bytes, times in seconds. ``name`` is "" if NODE_NAME is not set."""

    service_url: str
    credential: str
    broker_url: str
    object_store_url: str
    home: Path
    name: str
    capacity: int
    memory_bytes: int
    poll_seconds: float
    merge_on: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> NodeSettings:
        """Read the settings; raise BadSetting with the name of a missing or invalid variable."""
        home = Path(environment.get("LITHIFY_HOME") or ".lithify").resolve()
        credential = environment.get("WORKER_CREDENTIAL", "")
        if not credential:
            raise BadSetting("WORKER_CREDENTIAL is not set; create one with manage.py create_worker_credential NAME")
        return cls(
            service_url=environment.get("SERVICE_URL") or DEFAULT_SERVICE_URL,
            credential=credential,
            broker_url=environment.get("BROKER_URL") or DEFAULT_BROKER_URL,
            object_store_url=resolve_links(environment.get("OBJECT_STORE_URL") or f"file://{home}/objects"),
            home=home,
            name=environment.get("NODE_NAME", ""),
            capacity=int(_number(environment, "NODE_CAPACITY", os.cpu_count() or 1, 1, CAPACITY_MAX)),
            memory_bytes=int(_number(environment, "NODE_MEMORY_BYTES", _half_of_memory(), 64 << 20, 1 << 50)),
            poll_seconds=_number(environment, "POLL_SECONDS", 1.0, 0.01, 60.0),
            merge_on=_choice(environment, "MERGE_ON", ("spark", "engine")),
        )


def default_node_name() -> str:
    """Return the name of a node without NODE_NAME."""
    return socket.gethostname() or "node"


def _half_of_memory() -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE)


def _number(environment: Mapping[str, str], name: str, default: float, low: float, high: float) -> float:
    text = environment.get(name, "")
    try:
        value = float(text) if text else float(default)
    except ValueError:
        raise BadSetting(f"{name}={text!r} is not a number") from None
    if not low <= value <= high:
        raise BadSetting(f"{name}={text} is outside the range {low:g} to {high:g}")
    return value


def _choice(environment: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    text = environment.get(name) or choices[0]
    if text not in choices:
        raise BadSetting(f"{name}={text!r} is not one of {', '.join(choices)}")
    return text
