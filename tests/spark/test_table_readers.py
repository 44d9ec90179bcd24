"""A table merged on a real Spark, in a folder and on S3: readers that begin with the manifest agree at every moment.

In the end only what they see is left.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import duckdb
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from engine.lanes.tables.jobs import TableMergeResult
from engine.lanes.tables.plain.manifest import read_manifest
from engine.storage import ObjectStore, open_store
from spark.lanes.tables import merge as table_merge
from tests.webadmin.lanes.tables.conftest import CONTEXT, World, check_timelines
from tests.webadmin.lanes.tables.fake_node import FakeNode, seen_ids
from tests.webadmin.lanes.tables.parquet_files import day, put_hours, put_rows
from tests.webadmin.service import Service
from webadmin.lanes.tables.services.clean_table import clean_table
from webadmin.lanes.tables.services.sources import NewTable, create_table
from webadmin.lanes.tables.task_models import TaskChunk

pytestmark = pytest.mark.spark
DAYS, HOURS = (0, 1, 5), (1, 5, 9)


def make_world(store: ObjectStore, service: Service) -> World:
    """Return a table of three days of three files each, as readers see it."""
    service.clock.now_ms = day(60)
    table = create_table(NewTable(tenant="acme", name="events", url=store.url, time_column="ts"), context=CONTEXT)
    world = World(table, store, FakeNode(service.worker()), service)
    for number in DAYS:
        world.add(*put_hours(store, number, hours=HOURS))
    world.publish()
    return world


def merge(world: World, spark: SparkSession, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let Spark do all tasks; what is to be done meanwhile is done before the results are reported."""
    assert world.turn().created
    specs = world.node.take(10)
    results = table_merge.run(spark, specs, tag=f"test-{uuid4().hex}")
    meanwhile()
    for spec in specs:
        result = results[spec.job]
        assert isinstance(result, TableMergeResult), result
        world.node.worker.poll(world.node.success(spec, result), capacity=0)


def test_spark_duckdb_and_pyarrow_agree_with_the_manifest_before_during_and_after(
    spark: SparkSession, service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lake")
    world = make_world(open_store(str(folder)), service)

    def paths() -> list[str]:
        manifest = read_manifest(world.store)
        assert manifest is not None
        return [str(folder / file.path) for file in manifest.files]

    def agreed() -> list[int]:
        files = paths()
        by_spark = sorted(row.id for row in spark.read.parquet(*files).select("id").collect())
        with duckdb.connect() as connection:
            [(found,)] = connection.execute("SELECT list(id ORDER BY id) FROM read_parquet($1)", [files]).fetchall()
        by_pyarrow = sorted(ds.dataset(files, format="parquet").to_table(["id"])["id"].to_pylist())
        assert by_spark == found == by_pyarrow == seen_ids(world.store)
        return by_spark

    rows = agreed()
    assert len(rows) == len(DAYS) * len(HOURS) * 3
    begun = spark.read.parquet(*paths()).select("id")  # a query that has its files, and has read nothing of them
    late = 10**6

    def meanwhile() -> None:
        assert agreed() == rows, "the outputs lie there, and nobody sees them"
        put_rows(world.store, "day-000/late.parquet", [day(0) + 1], first_id=late)
        world.add("day-000/late.parquet")
        world.publish()
        assert agreed() == [*rows, late]

    merge(world, spark, meanwhile)
    assert agreed() == [*rows, late], "committed, and the pointer has not moved"
    world.publish()
    assert agreed() == [*rows, late]
    assert len(paths()) == len(DAYS) + 1
    assert sorted(row.id for row in begun.collect()) == rows, "who began before finishes with what was there"
    merge(world, spark)
    world.publish()
    assert agreed() == [*rows, late]
    assert len(paths()) == len(DAYS)
    assert world.turn().created == [], "the second plan is empty"
    assert set(TaskChunk.objects.values_list("outcome", flat=True)) == {"published", "carried_over"}
    check_timelines()


def test_a_table_on_s3_is_merged_published_and_cleaned(
    spark: SparkSession, service: Service, s3_store: ObjectStore
) -> None:
    world = make_world(s3_store, service)
    rows = seen_ids(s3_store)
    assert len(rows) == len(DAYS) * len(HOURS) * 3
    merge(world, spark)
    assert seen_ids(s3_store) == rows
    world.publish()
    assert seen_ids(s3_store) == rows
    service.clock.now_ms += 10 * 3_600_000
    assert clean_table(world.table, s3_store).files == len(DAYS) * len(HOURS)
    manifest = read_manifest(s3_store)
    assert manifest is not None
    left = {info.key for info in s3_store.list() if not info.key.startswith("_lithify/")}
    assert left == {file.path for file in manifest.files}
    assert len(left) == len(DAYS)
    assert seen_ids(s3_store) == rows
    assert world.turn().created == []
    check_timelines()
