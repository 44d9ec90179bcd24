"""Settings of the connection of a node to Spark, from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.settings.node import SparkVariables


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Settings of the connection to Spark.

    ``remote`` (``sc://host:port``, Spark Connect) has precedence over ``master``. ``archive`` is the output of
    ``./dev pack``, needed if executors are on other machines. ``driver_host`` is the address at which executors reach
    this node. ``scratch`` is a folder for temporary files of Spark in local mode. ``store_url`` is only checked: other
    machines cannot read a folder of this machine. ``secret_file`` holds the shared secret of a standalone cluster;
    ``allow_insecure`` permits a cluster without authentication.
    """

    master: str = "local[*]"
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
    def from_environment(cls, store_url: str, scratch: Path | None = None) -> SparkSettings:
        """Return what ``SparkVariables`` reads from the environment. Raises BadSetting."""
        read = SparkVariables.read()
        return cls(
            master=read.SPARK_MASTER,
            remote=read.SPARK_REMOTE,
            archive=read.SPARK_ARCHIVE,
            store_url=store_url,
            driver_host=read.SPARK_DRIVER_HOST,
            driver_memory=read.SPARK_DRIVER_MEMORY,
            scratch=scratch,
            log_level=read.SPARK_LOG_LEVEL,
            secret_file=read.SPARK_SECRET_FILE,
            allow_insecure=read.ALLOW_INSECURE_SPARK,
        )

    @property
    def runs_here(self) -> bool:
        """Whether Spark runs in local mode: the executors are threads of a JVM on this machine."""
        return not self.remote and (self.master == "local" or self.master.startswith("local["))
