"""The one Spark session of a node: where it runs, and what its executors need to run our code.

Make it lazily, in the process that uses it, and never fork that process afterwards: a forked child shares the socket to
the JVM with its parent and hangs. One process has one session; threads share it.
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
"""Jobs share the default pool; without this it would be first come, first served even under FAIR scheduling."""


def make_session(settings: SparkSettings) -> SparkSession:
    """Start, or connect to, Spark; BadSparkSetting if the settings contradict each other.

    The session is not proven yet: run ``spark.probe.probe`` before it merges anything.
    """
    _check(settings)
    # It tells of every connection it opens and closes, some of them after the logs are closed.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if settings.remote:
        return _connect(settings)
    # Spark tells its executors to start what this variable names.
    os.environ["PYSPARK_PYTHON"] = ARCHIVE_PYTHON if settings.archive else sys.executable
    # Spark would connect elsewhere if this is set, whatever master we ask for.
    os.environ.pop("SPARK_REMOTE", None)
    builder = SparkSession.builder.master(settings.master)
    for name, value in _classic_configuration(settings).items():
        builder = builder.config(name, value)
    # Read once, when the scheduler starts.
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
        raise BadSparkSetting(f"SPARK_ARCHIVE={settings.archive!r} is no file: make it with ./dev pack")


def check_visible(settings: SparkSettings, store_url: str) -> None:
    """Refuse a store that executors cannot see: BadSparkSetting if it is a folder of this machine and they are not."""
    if not settings.runs_here and is_local(store_url):
        raise BadSparkSetting(
            f"the executors of {settings.remote or settings.master} cannot see the folder {store_url!r} of this "
            "machine: use an S3 bucket (for profiles: OBJECT_STORE_URL), or set SPARK_MASTER to local[*]"
        )


def _check_loopback() -> None:
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        raise BadSparkSetting(
            "this machine does not know the name localhost, which Spark's Python needs: add the line "
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
        # A kernel that crashes says where.
        "spark.python.worker.faulthandler.enabled": "true",
        # An interrupted task does not look up by itself; its Python is ended.
        "spark.python.task.killTimeout": "100ms",
        # Every Arrow batch becomes a partition, however small the frame: see spark.frames.
        "spark.sql.execution.arrow.localRelationThreshold": "0",
        **RUNTIME_CONFIGURATION,
    }
    if settings.runs_here:
        # Nobody else talks to this Spark, so it listens to nobody else.
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
    # Our frames have no shuffle to adapt; planning is quicker without.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
}
"""What may be set on a session that is already running."""


def _connect(settings: SparkSettings) -> SparkSession:
    for module in CONNECT_MODULES:
        # Asked before PySpark does, which answers with the end of the process in some surroundings.
        try:
            importlib.import_module(module)
        except ImportError as error:
            hint = "pip install 'pyspark[connect]'"
            raise BadSparkSetting(f"SPARK_REMOTE needs more of PySpark: {hint} ({error})") from error
    session = SparkSession.builder.remote(settings.remote).getOrCreate()
    # A small frame is split into so many partitions there, at most one per row: see spark.frames.
    session.conf.set("spark.sql.leafNodeDefaultParallelism", str(CONNECT_PARTITIONS_MAX))
    for name, value in RUNTIME_CONFIGURATION.items():
        session.conf.set(name, value)
    if settings.archive:
        session.addArtifacts(f"{settings.archive}#{ARCHIVE_NAME}", archive=True)
        session.conf.set("spark.sql.execution.pyspark.python", ARCHIVE_PYTHON)
    return session
