"""Settings of compactor nodes, of Spark in them, and of Spark programs that query profiles."""

from __future__ import annotations

import os
from typing import Literal

from engine.settings.base import EnvironmentSettings, Seconds, Size, setting
from engine.settings.service import InstallationSettings

CAPACITY_MAX = 256
MEMORY_SHARE = 0.5
"""Share of the machine's memory that merges may plan with; the rest is Spark's, the system's and the page cache's."""


def _half_of_memory() -> int:
    return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * MEMORY_SHARE)


class SparkVariables(EnvironmentSettings):
    """How a node reaches Spark."""

    SPARK_MASTER: str = setting("Spark master", "local[*]")
    SPARK_REMOTE: str = setting("Spark Connect instead of a master", "", default_text="none", secret="url")
    SPARK_SECRET_FILE: str = setting(
        "file (mode 0600) with the secret of a standalone cluster", "", default_text="none"
    )
    ALLOW_INSECURE_SPARK: bool = setting(
        "1: use Spark on other machines without authentication, or Spark Connect without TLS or token", False
    )
    SPARK_ARCHIVE: str = setting("archive of ./dev pack, for executors on other machines", "", default_text="none")
    SPARK_DRIVER_HOST: str = setting(
        "address at which executors on other machines reach this node", "", default_text="Spark's choice"
    )
    SPARK_DRIVER_MEMORY: str = setting("memory of the driver's JVM, in Spark's notation", "1g")
    SPARK_LOG_LEVEL: str = setting("level of Spark's own log", "ERROR")


class NodeSettings(InstallationSettings, SparkVariables):
    """Settings of a compactor node; it needs no database and no Django. ``NODE_NAME`` is "" when any name will do."""

    SERVICE_URL: str = setting("address of the web process", "http://127.0.0.1:8000")
    WORKER_CREDENTIAL: str = setting(
        "the secret printed by create_worker_credential", default_text="none: required", secret="value"
    )
    NODE_NAME: str = setting(
        "the worker's name; numbered when several nodes share a home", "", default_text="the host name"
    )
    NODE_CAPACITY: int = setting(
        "maximum number of jobs at once",
        default_factory=lambda: min(os.cpu_count() or 1, CAPACITY_MAX),
        default_text="logical cores",
        ge=1,
        le=CAPACITY_MAX,
    )
    NODE_MEMORY_BYTES: Size = setting(
        "memory for merges",
        default_factory=_half_of_memory,
        default_text="half of the machine's",
        ge=64 << 20,
        le=1 << 50,
    )
    POLL_SECONDS: Seconds = setting("time between polls without changes", 1.0, ge=0.01, le=60.0)
    MERGE_ON: Literal["spark", "engine"] = setting("or engine: in the node's own process, without Java", "spark")
    LITHIFY_PURE: Literal["0", "1"] = setting(
        "1: use the plain-Python implementations instead of the compiled kernels", "0"
    )


class SourceSettings(EnvironmentSettings):
    """Settings of a Spark program that queries profiles, on the driver; options of the data source take precedence."""

    SERVICE_URL: str = setting("address of the web process", "", default_text="none: an option, or required")
    SERVICE_CREDENTIAL: str = setting(
        "a credential with the scopes blocks:query and tenant:NAME",
        "",
        default_text="none: an option, or required",
        secret="value",
    )
    OBJECT_STORE_URL: str = setting(
        "the object store: file:///path or s3://bucket/prefix?endpoint=…&region=…",
        "",
        default_text="none: an option, or required",
    )
