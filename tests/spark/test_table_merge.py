"""Merges of Parquet files on a real Spark: the engine's own bytes, however the work is spread, and a clean end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
from pyspark import SparkFiles
from pyspark.sql import SparkSession

from engine.core.errors import BadObject, MergeCancelled
from engine.core.scratch_folders import PREFIX
from engine.formats.parquet.errors import SchemaConflict
from engine.lanes.tables.jobs import Metric, RollUp, TableMergeResult, TableMergeSpec
from engine.lanes.tables.merge import merge_job
from engine.protocol.messages import Progress
from spark.errors import SparkJobFailed
from spark.lanes.tables import merge as table_merge
from spark.row_carriers import carried_rows, is_carried, original_rows
from tests.engine.lanes.tables.table_files import DAY_MS, TableFolder

pytestmark = pytest.mark.spark
ROLL_UP = RollUp(
    dimensions=("name",),
    metrics=(
        Metric(name="rows", function="count"),
        Metric(name="value", function="sum", column="value"),
        Metric(name="most", function="max", column="money"),
        Metric(name="days", function="distinct", column="day"),
    ),
    granularity_ms=3_600_000,
)


@pytest.fixture
def folder(tmp_path: Path) -> TableFolder:
    (path := tmp_path / "table").mkdir()
    return TableFolder(path)


@pytest.fixture
def tag() -> str:
    return f"test-{uuid4().hex}"


def all_kinds(seed: int, count: int, day: int = 0) -> pa.Table:
    """Return rows of every type that Spark cannot hold, among others, with nulls, NaN and -0.0."""
    chance = np.random.default_rng(seed)
    at = chance.integers(day * DAY_MS, (day + 1) * DAY_MS, count)
    names = [None if value < 2 else f"n\0{value}" for value in chance.integers(0, 20, count)]
    cents = chance.integers(-999, 999, count)
    values = chance.choice([np.nan, -0.0, 0.0, 1e300, -2.5, 0.1], count)
    return pa.table(
        {
            "at": pa.array(at * 1_000_000 + 7, pa.timestamp("ns", "UTC")),
            "name": pa.array(names, pa.large_string() if seed % 2 else pa.string()),
            "value": pa.array(values),
            "half": pa.array(np.clip(values, -9, 9).astype(np.float32)),
            "unsigned": pa.array(chance.integers(0, (1 << 64) - 1, count, np.uint64)),
            "small": pa.array(chance.integers(0, 255, count), pa.uint8()),
            "day": pa.array([date(2024, 2, 1 + value % 20) for value in range(count)], pa.date32()),
            "money": pa.array([Decimal(value) / 100 for value in cents.tolist()], pa.decimal128(20, 2)),
            "flag": pa.array([None if value == 2 else bool(value) for value in chance.integers(0, 3, count)]),
            "fixed": pa.array([bytes([value % 256]) * 3 for value in range(count)], pa.binary(3)),
            "clock": pa.array(chance.integers(0, 86_399, count), pa.int32()).view(pa.time32("s")),
        }
    )


def written(folder: TableFolder, result: object) -> dict[str, bytes]:
    """Return the outputs of a result and delete them."""
    assert isinstance(result, TableMergeResult), result
    found = {file.path: folder.store.get(file.path) for file in result.outputs}
    for path in found:
        folder.store.delete(path)
    return found


def jobs_of(folder: TableFolder, **fields: object) -> list[TableMergeSpec]:
    """Return two jobs over several chunks and folders; one file lies in two chunks."""
    over_midnight = pa.concat_tables([all_kinds(8, 50, 0), all_kinds(10, 50, 1)])
    shared = folder.put("r=1/shared.parquet", over_midnight, whole=False)
    first = [folder.put(f"r={n % 2}/{n}.parquet", all_kinds(n, 400)) for n in range(6)]
    later = [folder.put(f"r=1/later-{n}.parquet", all_kinds(n, 100, 1)) for n in range(2)]
    one = folder.spec([*first, shared], [*later, shared], target_bytes=20_000, **fields)
    others = [folder.put(f"other/{n}.parquet", all_kinds(n, 99)) for n in range(3)]
    other = folder.spec(others, job="tables/b", **fields)
    return [one, other]


@pytest.mark.parametrize("frame_bytes", [1 << 30, 0])
@pytest.mark.parametrize("fields", [{"sort_columns": ("name", "value")}, {"roll_up": ROLL_UP}])
def test_the_bytes_are_those_of_the_engine(
    spark: SparkSession, folder: TableFolder, tag: str, fields: dict[str, object], frame_bytes: int
) -> None:
    """With Spark's sort (0) and without; the parallelism is Spark's own, and the engine has none."""
    specs = jobs_of(folder, **fields)
    expected = {spec.job: (result := folder.merge(spec), written(folder, result)) for spec in specs}
    outcomes = table_merge.run(spark, specs, tag=tag, frame_bytes=frame_bytes)
    for spec in specs:
        outcome = outcomes[spec.job]
        assert written(folder, outcome) == expected[spec.job][1]
        assert outcome == expected[spec.job][0]
    assert not list(Path(SparkFiles.getRootDirectory()).glob(f"{PREFIX}*"))


def test_one_slot_and_two_give_the_same(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    (spec, _) = jobs_of(folder)
    both = []
    for slots in (1, 2):
        spark.conf.set("spark.sql.shuffle.partitions", slots)
        both.append(written(folder, table_merge.run(spark, [spec], tag=f"{tag}-{slots}", frame_bytes=0)[spec.job]))
    assert both[0] == both[1]


def test_nested_columns_are_sorted_in_one_task(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    table = pa.table({"at": pa.array([3, 1, 2], pa.timestamp("us")), "tags": [["a"], None, []]})
    spec = folder.spec([folder.put("a.parquet", table)])
    assert not is_carried(table.schema)
    expected = written(folder, folder.merge(spec))
    assert written(folder, table_merge.run(spark, [spec], tag=tag, frame_bytes=0)[spec.job]) == expected


def test_carried_rows_come_back_bit_for_bit() -> None:
    table = all_kinds(1, 40).slice(7)
    back = original_rows(carried_rows(table, pa.array([b""] * 33)), table.schema)
    assert back.schema == table.schema
    for name, bits in (("value", pa.int64()), ("half", pa.int32())):
        assert back[name].combine_chunks().view(bits) == table[name].combine_chunks().view(bits)
    assert back.drop_columns(["value", "half"]).equals(table.drop_columns(["value", "half"]))


@pytest.mark.parametrize("frame_bytes", [1 << 30, 0])
def test_an_error_is_that_of_the_engine_and_of_its_job_only(
    spark: SparkSession, folder: TableFolder, tag: str, frame_bytes: int
) -> None:
    specs = jobs_of(folder)
    bad = folder.put("bad/a.parquet", all_kinds(3, 500), write_page_checksum=True)
    data = bytearray(folder.store.get(bad.path))
    data[60:90] = bytes(30)
    folder.store.put(bad.path, bytes(data))
    other = folder.put("bad/b.parquet", all_kinds(3, 5).select(["at"]).append_column("name", pa.array(range(5))))
    good = folder.put("bad/c.parquet", all_kinds(4, 500, 1))
    broken = folder.spec([bad], [good], job="tables/broken")
    conflict = folder.spec([good, other], job="tables/conflict")
    before = folder.files()
    outcomes = table_merge.run(spark, [*specs, broken, conflict], tag=tag, frame_bytes=frame_bytes)
    error = outcomes["tables/broken"]
    assert isinstance(error, BadObject)
    assert (error.object_name, error.section) == ("bad/a.parquet", "row group 0, column at")
    assert isinstance(outcomes["tables/conflict"], SchemaConflict)
    for spec in specs:
        written(folder, outcomes[spec.job])
    assert folder.files() == before


def test_rows_in_no_chunk_fail_the_job(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    shared = folder.put("a.parquet", pa.concat_tables([all_kinds(1, 5), all_kinds(1, 5, 1)]), whole=False)
    outcome = table_merge.run(spark, [folder.spec([shared])], tag=tag)["tables/test"]
    assert isinstance(outcome, BadObject)
    assert folder.files() == ["a.parquet"]


def test_a_cancelled_job_is_not_started_or_is_stopped(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    specs = jobs_of(folder)
    before = folder.files()
    unwanted = {specs[0].job}
    outcomes = table_merge.run(spark, specs, tag=tag, cancelled=unwanted.__contains__)
    assert isinstance(outcomes[specs[0].job], MergeCancelled)
    written(folder, outcomes[specs[1].job])
    assert folder.files() == before


def test_an_interrupted_batch_ends_and_harms_no_file_but_its_own(
    spark: SparkSession, folder: TableFolder, tag: str
) -> None:
    (spec, _) = jobs_of(folder)
    before, is_wanted = folder.files(), threading.Event()
    is_wanted.set()

    def stop_at_once(job: str, progress: Progress) -> None:
        is_wanted.clear()
        table_merge.interrupt(spark, tag)

    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(
            lambda: table_merge.run(
                spark, [spec], tag=tag, cancelled=lambda job: not is_wanted.is_set(), progress=stop_at_once
            )
        ).result()[spec.job]
    assert isinstance(outcome, MergeCancelled | SparkJobFailed)
    # A task that was ended may have written one more file, under a name that is swept by age.
    own = {
        spec.output_path(chunk, name, number)
        for chunk in spec.chunks
        for name in chunk.folders()
        for number in range(10)
    }
    assert sorted(set(folder.files()) - own) == before


def test_progress_counts_the_bytes_of_sources(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    specs = jobs_of(folder)
    told: dict[str, list[Progress]] = {spec.job: [] for spec in specs}
    for outcome in table_merge.run(spark, specs, tag=tag, progress=lambda job, one: told[job].append(one)).values():
        written(folder, outcome)
    for spec in specs:
        total = merge_job.source_bytes(spec)
        assert (told[spec.job][0].done, told[spec.job][-1].done) == (0, total)
        assert {progress.total for progress in told[spec.job]} == {total}


def test_spark_reads_what_was_written(spark: SparkSession, folder: TableFolder, tag: str) -> None:
    tables = [all_kinds(n, 50).select(["name", "value", "day", "money"]) for n in range(3)]
    times = pa.array(range(50), pa.timestamp("us", "UTC"))
    files = [folder.put(f"{n}.parquet", table.append_column("at", times)) for n, table in enumerate(tables)]
    paths = [str(folder.path / file.path) for file in files]
    before = sorted(map(str, spark.read.parquet(*paths).collect()))
    outcome = table_merge.run(spark, [folder.spec(files)], tag=tag)["tables/test"]
    assert isinstance(outcome, TableMergeResult)
    after = spark.read.parquet(*(str(folder.path / file.path) for file in outcome.outputs))
    assert sorted(map(str, after.collect())) == before
    assert dict(after.dtypes) == dict(spark.read.parquet(paths[0]).dtypes)


def test_the_token_is_in_the_names(folder: TableFolder) -> None:
    (spec, _) = jobs_of(folder)
    names = [set(written(folder, folder.merge(replace(spec, fence=fence)))) for fence in (1, 2)]
    assert not names[0] & names[1]
