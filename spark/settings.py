"""Settings of the connection of a node to Spark, from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of the connection to Spark.

    ``remote`` (``sc://host:port``, Spark Connect) has precedence over ``master``. ``archive`` is the output of
    ``./dev pack``, needed if executors are on other machines. ``driver_host`` is the address at which executors reach
    this node. ``scratch`` is a folder for temporary files of Spark in local mode. ``store_url`` is only checked: other
    machines cannot read a folder of this machine. ``secret_file`` holds the shared secret of a standalone cluster;
    ``allow_insecure`` permits a cluster without authentication.
    """

    master: str = DEFAULT_MASTER
    remote: str = ""
    archive: str = ""
    store_url: str = ""
    driver_host: str = ""
    driver_memory: str = "1g"
    scratch: Path | None = None
    log_level: str = "ERROR"
    secret_file: str = ""
    allow_insecure: bool = False

    @classmethod
    def from_environment(
        cls, store_url: str, scratch: Path | None = None, environment: Mapping[str, str] = os.environ
    ) -> SparkSettings:
        """Read SPARK_MASTER, SPARK_REMOTE, SPARK_ARCHIVE, SPARK_DRIVER_HOST, SPARK_DRIVER_MEMORY, SPARK_LOG_LEVEL,
        SPARK_SECRET_FILE, ALLOW_INSECURE_SPARK."""
        return cls(
            master=environment.get("SPARK_MASTER") or DEFAULT_MASTER,
            remote=environment.get("SPARK_REMOTE") or "",
            archive=environment.get("SPARK_ARCHIVE") or "",
            store_url=store_url,
            driver_host=environment.get("SPARK_DRIVER_HOST") or "",
            driver_memory=environment.get("SPARK_DRIVER_MEMORY") or "1g",
            scratch=scratch,
            log_level=environment.get("SPARK_LOG_LEVEL") or "ERROR",
            secret_file=environment.get("SPARK_SECRET_FILE") or "",
            allow_insecure=environment.get("ALLOW_INSECURE_SPARK", "").lower() in {"1", "true", "yes"},
        )

    @property
    def runs_here(self) -> bool:
        """Whether Spark runs in local mode: the executors are threads of a JVM on this machine."""
        return not self.remote and (self.master == "local" or self.master.startswith("local["))
