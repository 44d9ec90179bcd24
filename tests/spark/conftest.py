"""One small Spark for all tests of a process, and the S3 server that executors elsewhere need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark.session import SparkSettings, make_session
from tests.object_stores import s3_credentials, s3_server, s3_store

__all__ = ["s3_credentials", "s3_server", "s3_store"]


@pytest.fixture(scope="session")
def spark(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores; its executors take the credentials for S3 from the environment it starts in."""
    session = make_session(SparkSettings(master="local[2]", scratch=tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()
