"""Which Spark a node may use, and how its work is spread."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.errors import BadSparkSetting
from spark.frames import PARTITIONS_MAX, run_work_items
from spark.session import make_session
from spark.settings import SparkSettings
from tests.environments import set_only


@pytest.mark.parametrize("where", [{"master": "spark://127.0.0.1:7077"}, {"remote": "sc://127.0.0.1:15002"}])
def test_a_folder_of_this_machine_is_refused_with_executors_elsewhere(where: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(BadSparkSetting, match="cannot see the folder"):
        make_session(SparkSettings(store_url=tmp_path.as_uri(), **where))


def test_a_missing_archive_is_refused() -> None:
    settings = SparkSettings(master="spark://h:7077", store_url="s3://b", archive="missing.tar.gz", allow_insecure=True)
    with pytest.raises(BadSparkSetting, match="dev pack"):
        make_session(settings)


def test_spark_connect_without_its_libraries_is_an_error_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc_status", None)
    with pytest.raises(BadSparkSetting, match=r"pip install 'pyspark\[connect\]'"):
        make_session(SparkSettings(remote="sc://127.0.0.1:1", store_url="s3://b", allow_insecure=True))


def test_a_machine_without_localhost_is_an_error_with_what_to_add(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(BadSparkSetting, match="/etc/hosts"):
        make_session(SparkSettings())


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_only(monkeypatch, {})
    assert SparkSettings.from_environment("s3://b").runs_here
    set_only(
        monkeypatch,
        {"SPARK_MASTER": "spark://h:7077", "SPARK_ARCHIVE": "a.tar.gz", "SPARK_DRIVER_HOST": "10.0.0.1"},
    )
    settings = SparkSettings.from_environment("s3://b")
    assert settings == SparkSettings(
        master="spark://h:7077", archive="a.tar.gz", driver_host="10.0.0.1", store_url="s3://b"
    )
    assert not settings.runs_here
    set_only(monkeypatch, {"SPARK_REMOTE": "sc://h"})
    assert not SparkSettings.from_environment("s3://b").runs_here


def tell_where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say which rows came together, and which Python ran them."""
    rows = [value for batch in batches for value in batch.column("task").to_pylist()]
    yield pa.record_batch({"rows": [rows], "python": [sys.executable], "parent": [os.getppid()]})


@pytest.mark.spark
@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_every_order_is_a_task_of_its_own(spark: SparkSession, count: int) -> None:
    work_items = pa.table({"task": pa.array(range(count), pa.int32())})
    told = run_work_items(spark, work_items, tell_where, "rows array<long>, python string, parent long")
    assert sorted(told["rows"].to_pylist()) == [[number] for number in range(count)]
    assert set(told["python"].to_pylist()) == {sys.executable}
    assert set(told["parent"].to_pylist()).isdisjoint({os.getpid()})


@pytest.mark.spark
def test_more_orders_than_partitions_are_refused(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="work items in a frame, at most"):
        run_work_items(spark, pa.table({"task": range(PARTITIONS_MAX + 1)}), tell_where, "rows array<long>")


@pytest.mark.spark
def test_scheduling_is_fair_among_jobs(spark: SparkSession) -> None:
    assert spark.conf.get("spark.scheduler.mode") == "FAIR"
    pools = spark.sparkContext._jsc.sc().getAllPools()  # The only place where Spark tells.
    assert [str(pools.apply(number).schedulingMode()) for number in range(pools.size())] == ["FAIR"]
