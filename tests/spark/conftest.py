"""One small Spark for all tests of a process, and the S3 server that executors elsewhere need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pytest_django.live_server_helper import LiveServer

from engine.storage import open_store
from spark import pack
from spark.profiles_source import register
from spark.session import make_session
from spark.settings import SparkSettings
from tests.database import clock  # noqa: F401  (a fixture)
from tests.engine.conftest import foreign_blocks
from tests.object_stores import s3_credentials, s3_server, s3_store
from tests.spark.stored_rows import StoredRows
from tests.webadmin.conftest import service  # noqa: F401  (a fixture)
from tests.webadmin.service import Service

HERE = Path(__file__).parent
__all__ = ["foreign_blocks", "s3_credentials", "s3_server", "s3_store"]


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


@pytest.fixture
def stored(live_server: LiveServer, clock: Any, tmp_path: Path) -> Iterator[StoredRows]:  # noqa: F811
    store = open_store(f"file://{tmp_path / 'store'}")
    yield StoredRows(Service(clock), store, tmp_path / "scratch", live_server.url)
    store.close()


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    """Spark that knows the data source."""
    register(spark)
    spark.conf.set("spark.sql.shuffle.partitions", "2")  # answers are small, and Spark's usual 200 tasks are not
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark
