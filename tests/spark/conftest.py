"""One small Spark for all tests of a process, and the S3 server that executors elsewhere need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import pack
from spark.session import SparkSettings, make_session
from tests.object_stores import s3_credentials, s3_server, s3_store

HERE = Path(__file__).parent
__all__ = ["s3_credentials", "s3_server", "s3_store"]


@pytest.hookimpl(tryfirst=True)  # Before xdist reads the groups.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that share a Spark, or an archive, in one process: making a second takes longer than the tests."""
    for item in items:
        for shared in ("spark", "archive"):
            if HERE in item.path.parents and shared in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(shared))


@pytest.fixture(scope="session")
def spark(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark with two cores; its executors take the credentials for S3 from the environment it starts in."""
    session = make_session(SparkSettings(master="local[2]", scratch=tmp_path_factory.mktemp("spark")))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``./dev pack`` makes."""
    return pack.pack(tmp_path_factory.mktemp("archive") / pack.default_name())
