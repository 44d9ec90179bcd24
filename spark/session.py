"""The Spark session of a node and the configuration of its executors.

Create it lazily, in the process that uses it, and never fork that process afterwards: a forked child shares the socket
to the JVM with its parent and hangs. A process has one session; threads share it.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from engine.storage import is_local
from spark.authentication import authentication, check_authentication, secret_properties
from spark.errors import BadSparkSetting
from spark.frames import CONNECT_PARTITIONS_MAX
from spark.settings import SparkSettings

ARCHIVE_NAME = "lithify"
"""The folder in an executor's working directory where Spark unpacks the archive of ``./dev pack``."""
ARCHIVE_PYTHON = f"./{ARCHIVE_NAME}/bin/python"
CONNECT_MODULES = ("grpc", "grpc_status", "google.rpc")

FAIR_POOL = """<?xml version="1.0"?>
<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>
"""
"""Spark jobs share the default pool; without this it is FIFO even under FAIR scheduling."""


def make_session(settings: SparkSettings) -> SparkSession:
    """Start Spark or connect to it; raise BadSparkSetting if the settings contradict each other.

    Run ``spark.probe.probe`` on the session before it merges anything.
    """
    _check(settings)
    # It logs every connection, some of them after logging has shut down.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if settings.remote:
        return _connect(settings)
    # The Python that Spark starts on executors.
    os.environ["PYSPARK_PYTHON"] = ARCHIVE_PYTHON if settings.archive else sys.executable
    # If this is set, Spark ignores the master and uses Spark Connect.
    os.environ.pop("SPARK_REMOTE", None)
    builder = SparkSession.builder.master(settings.master)
    for name, value in _classic_configuration(settings).items():
        builder = builder.config(name, value)
    # Spark reads the file once, when the scheduler starts.
    with tempfile.NamedTemporaryFile("w", prefix="lithify-spark-pools-", suffix=".xml") as pools:
        pools.write(FAIR_POOL)
        pools.flush()
        with secret_properties(settings):
            return builder.config("spark.scheduler.allocation.file", pools.name).getOrCreate()


def _check(settings: SparkSettings) -> None:
    if not settings.remote:
        _check_loopback()
    if settings.runs_here:
        return
    if settings.store_url:
        check_visible(settings, settings.store_url)
    check_authentication(settings)
    if settings.archive and not Path(settings.archive).is_file():
        raise BadSparkSetting(f"SPARK_ARCHIVE={settings.archive!r} is not a file: create it with ./dev pack")


def check_visible(settings: SparkSettings, store_url: str) -> None:
    """Raise BadSparkSetting if the store is a folder of this machine and the executors are on other machines."""
    if not settings.runs_here and is_local(store_url):
        raise BadSparkSetting(
            f"the executors of {settings.remote or settings.master} cannot see the folder {store_url!r} of this "
            "machine: use S3 (OBJECT_STORE_URL, or the URL of the data), or set SPARK_MASTER to local[*]"
        )


def _check_loopback() -> None:
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        raise BadSparkSetting(
            "this machine cannot resolve the name localhost, which PySpark needs: add the line "
            f"'127.0.0.1 localhost' to /etc/hosts ({error})"
        ) from error


def _classic_configuration(settings: SparkSettings) -> dict[str, str]:
    configuration = {
        "spark.app.name": "lithify",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": settings.log_level,
        "spark.driver.memory": settings.driver_memory,
        "spark.scheduler.mode": "FAIR",
        # Print a stack trace if a kernel crashes.
        "spark.python.worker.faulthandler.enabled": "true",
        # An interrupted task does not stop by itself; its Python process is killed.
        "spark.python.task.killTimeout": "100ms",
        # Every Arrow batch becomes a partition, also of small frames: see spark.frames.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        **RUNTIME_CONFIGURATION,
    }
    if settings.runs_here:
        # Local Spark needs no connections from other machines.
        configuration |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    elif settings.driver_host:
        configuration |= {"spark.driver.host": settings.driver_host, "spark.driver.bindAddress": settings.driver_host}
    if settings.scratch and settings.runs_here:
        settings.scratch.mkdir(parents=True, exist_ok=True)
        configuration["spark.local.dir"] = str(settings.scratch)
    if not settings.runs_here:
        configuration |= authentication(settings)
    if settings.archive:
        configuration["spark.archives"] = f"{settings.archive}#{ARCHIVE_NAME}"
    return configuration


RUNTIME_CONFIGURATION = {
    # The frames have no shuffle to adapt; planning is faster without it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
"""Configuration that may be set on a running session."""


def _connect(settings: SparkSettings) -> SparkSession:
    for module in CONNECT_MODULES:
        # Checked here because PySpark ends the process in some environments if one is missing.
        try:
            importlib.import_module(module)
        except ImportError as error:
            hint = "pip install 'pyspark[connect]'"
            raise BadSparkSetting(f"SPARK_REMOTE needs optional packages of PySpark: {hint} ({error})") from error
    session = SparkSession.builder.remote(settings.remote).getOrCreate()
    # Spark Connect splits small frames into this many partitions, at most one per row: see spark.frames.
    session.conf.set("spark.sql.leafNodeDefaultParallelism", str(CONNECT_PARTITIONS_MAX))
    for name, value in RUNTIME_CONFIGURATION.items():
        session.conf.set(name, value)
    if settings.archive:
        session.addArtifacts(f"{settings.archive}#{ARCHIVE_NAME}", archive=True)
        session.conf.set("spark.sql.execution.pyspark.python", ARCHIVE_PYTHON)
    return session
