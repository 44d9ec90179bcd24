"""How a node reaches Spark: what its environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """How to reach Spark.

    ``remote`` (``sc://host:port``, Spark Connect) wins over ``master``. ``archive`` is what ``./dev pack`` wrote,
    needed where executors are on other machines. ``driver_host`` is the address at which executors reach this node.
    ``scratch`` is a folder for Spark's own temporary files in local mode. ``store_url`` is only looked at: a folder of
    this machine cannot be merged by others. ``secret_file`` holds the secret that a standalone cluster shares,
    ``allow_insecure`` goes without authentication.
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
        """Whether the executors are threads of this machine's own JVM."""
        return not self.remote and (self.master == "local" or self.master.startswith("local["))
