"""A batch with jobs of every kind: each is merged as what it is, on both mergers, and none stands in another's way."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.core.errors import LithifyError
from engine.core.thread_priority import LOW_PRIORITY_NICE
from engine.lanes.catalog import compact_job
from engine.lanes.catalog.apply_plan import ApplyPlan
from engine.lanes.catalog.compact_job import CompactJob
from engine.lanes.catalog.files import CatalogFiles
from engine.lanes.catalog.jobs import CatalogCompactSpec
from engine.lanes.catalog.messages import read_catalog_result
from engine.lanes.catalog.plan.sensor import PathLimits
from engine.lanes.tables.jobs import TableMergeResult, TableMergeSpec
from engine.lanes.tables.results import read_table_result
from engine.lanes.tsdb.jobs import BlockFile, TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.results import read_tsdb_result
from engine.protocol.messages import Progress
from engine.storage import ObjectNotFound, ObjectStore, open_store
from spark.errors import BadSparkSetting
from tasks.engine_merger import EngineMerger
from tasks.errors import BadAssignment
from tasks.merger import Merger, Outcome
from tasks.node import messages_of
from tasks.spark_merger import SparkMerger
from tasks.specs import LONG_JOB_BYTES, engine_lanes
from tests.engine.lanes.catalog.compact_jobs import compact_spec
from tests.engine.lanes.catalog.factories import SMALL, state, values_of
from tests.engine.lanes.tables.table_files import TableFolder
from tests.segments import segment_job
from tests.tsdb_blocks import FOLDER, replicas_job


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "profiles"))


@pytest.fixture
def bucket(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "bucket"))


@pytest.fixture
def blocks_job(bucket: ObjectStore, tmp_path: Path) -> TsdbMergeSpec:
    return replicas_job("blocks", bucket, tmp_path / "blocks")


@pytest.fixture
def merger(store: ObjectStore, tmp_path: Path) -> EngineMerger:
    (tmp_path / "scratch").mkdir()
    merger = EngineMerger(store.url, tmp_path / "scratch")
    merger.start()
    return merger


def merge(merger: Merger, specs: dict[str, dict[str, Any]], **told: Any) -> dict[str, Outcome]:
    usual: dict[str, Any] = {"cancelled": lambda job: False, "progress": lambda job, progress: None}
    return dict(merger.merge("batch-1", specs, **(usual | told)))


def test_both_kinds_are_merged_in_one_batch(
    merger: EngineMerger, store: ObjectStore, bucket: ObjectStore, blocks_job: TsdbMergeSpec
) -> None:
    profiles = segment_job(store, "profiles", 7)
    told: list[tuple[str, Progress]] = []
    specs = {"blocks": blocks_job.to_json(), profiles.job: profiles.to_json()}
    outcomes = merge(merger, specs, progress=lambda *report: told.append(report))
    of_blocks, of_profiles = outcomes["blocks"], outcomes[profiles.job]
    assert isinstance(of_blocks, dict)
    assert isinstance(of_profiles, dict)
    block = read_tsdb_result(of_blocks).block
    assert block is not None
    assert {info.key for info in bucket.list(f"{FOLDER}{block.id}/")} == {
        f"{FOLDER}{block.id}/{file.name}" for file in block.files
    }
    assert of_profiles["kind"] == "profiles"
    assert {job for job, _ in told} == {"blocks"}
    assert told[-1][1].phase == "upload"


def test_a_job_that_fails_takes_back_what_it_sent(
    merger: EngineMerger, bucket: ObjectStore, blocks_job: TsdbMergeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        assert list(bucket.list(f"{FOLDER}{blocks_job.result_id()}/"))
        raise ZeroDivisionError

    monkeypatch.setattr("engine.lanes.tsdb.merge.merge_job.measure_index", fail)
    assert isinstance(merge(merger, {"blocks": blocks_job.to_json()})["blocks"], ZeroDivisionError)
    assert list(bucket.list(f"{FOLDER}{blocks_job.result_id()}/")) == []


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "metrics"},
        {"kind": ["tsdb"]},
        {"kind": None},
        {"sources": [{"id": "../../x", "level": 1, "files": [], "meta": ""}]},
        {"folder": "../"},
        {"partition": 5},
        {"task_memory_bytes": "all"},
    ],
)
def test_a_specification_that_cannot_be_carried_out_fails_that_job_only(
    merger: EngineMerger, blocks_job: TsdbMergeSpec, change: dict[str, Any]
) -> None:
    hostile = blocks_job.to_json() | {"job": "hostile"} | change
    outcomes = merge(merger, {"blocks": blocks_job.to_json(), "hostile": hostile})
    assert isinstance(outcomes["hostile"], BadAssignment)
    assert isinstance(outcomes["blocks"], dict)


def tables_job(folder: Path, **fields: Any) -> TableMergeSpec:
    (folder / "table").mkdir()
    table = TableFolder(folder / "table")
    files = [table.put(f"{number}.parquet", pa.table({"at": [number], "x": [number]})) for number in (2, 1)]
    return table.spec(files, time_unit="ms", **fields)


def test_files_of_a_table_are_merged_beside_blocks(
    merger: EngineMerger, blocks_job: TsdbMergeSpec, tmp_path: Path
) -> None:
    spec, told = tables_job(tmp_path), list[tuple[str, Progress]]()
    specs = {"blocks": blocks_job.to_json(), spec.job: spec.to_json()}
    outcome = merge(merger, specs, progress=lambda *report: told.append(report))[spec.job]
    (output,) = read_table_result(outcome).outputs
    assert pq.read_table(tmp_path / "table" / output.path)["x"].to_pylist() == [1, 2]
    assert told[-1][1].done == told[-1][1].total == sum(file.size for file in spec.chunks[0].files)
    conflict = tables_job(tmp_path / "scratch", sort_columns=["x"]).to_json() | {"url": "file:///nowhere-at-all"}
    assert isinstance(merge(merger, {spec.job: conflict})[spec.job], LithifyError)


def branch_job(store: ObjectStore, **fields: Any) -> CatalogCompactSpec:
    files = CatalogFiles(store, "repository/")
    base = state(files, {b"a": "1", b"b": "1"})
    return compact_spec(files, base, [({b"b": None, b"c": "2"}, [])], SMALL, job="branch", **fields)


def test_a_branch_is_folded_beside_blocks_at_low_priority(
    merger: EngineMerger, store: ObjectStore, blocks_job: TsdbMergeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, told = branch_job(store), list[tuple[str, Progress]]()
    priorities = []
    plan = CompactJob.plan

    def seen(job: CompactJob) -> ApplyPlan:
        priorities.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return plan(job)

    monkeypatch.setattr(CompactJob, "plan", seen)
    specs = {"blocks": blocks_job.to_json(), spec.job: spec.to_json()}
    outcome = read_catalog_result(merge(merger, specs, progress=lambda *report: told.append(report))[spec.job])
    files = CatalogFiles(store, "repository/")
    assert values_of(files, files.read_metarange(outcome.metarange)) == {b"a": "1", b"c": "2"}
    assert told[-1][1].done == told[-1][1].total > 0
    assert priorities == [max(LOW_PRIORITY_NICE, os.getpriority(os.PRIO_PROCESS, 0))]
    store.delete(spec.layers[0].key)
    assert isinstance(merge(merger, {spec.job: spec.to_json()})[spec.job], ObjectNotFound)


def test_on_spark_a_small_branch_stays_in_the_process_and_a_large_one_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: ObjectStore
) -> None:
    sent: list[str] = []

    def on_spark(session: object, specs: list[CatalogCompactSpec], store_url: str, **_: object) -> dict[str, Any]:
        sent.extend(spec.job for spec in specs)
        return {spec.job: compact_job.run(spec, store) for spec in specs}

    monkeypatch.setattr("spark.lanes.catalog.compact.run", on_spark)
    merger = spark_merger(monkeypatch, tmp_path, "local[2]", store.url)
    small = branch_job(store)
    files = CatalogFiles(store, "repository/")
    wide = {b"%04d" % number: "x" for number in range(2000)}
    changes = {b"%04d" % number: "y" for number in range(0, 2000, 40)}
    base = state(files, wide)
    limits = PathLimits(rows=len(changes) - 1)
    large = compact_spec(files, base, [(changes, [])], SMALL, job="large", unit_bytes=1, limits=limits)
    lost = replace(small, job="lost", base="0" * 64)
    outcomes = merge(merger, {spec.job: spec.to_json() for spec in (small, large, lost)})
    assert sent == ["large"]
    assert outcomes["branch"] == compact_job.run(small, store).to_json()
    assert outcomes["large"] == compact_job.run(large, store).to_json()
    assert isinstance(outcomes["lost"], ObjectNotFound)


def test_a_long_job_is_a_message_by_itself(blocks_job: TsdbMergeSpec, store: ObjectStore) -> None:
    source = blocks_job.sources[0]
    large = BlockFile(name="chunks/000002", size=LONG_JOB_BYTES)
    long = replace(blocks_job, sources=(replace(source, files=(*source.files, large)),)).to_json()
    short, profiles = blocks_job.to_json(), segment_job(store, "profiles", 7).to_json()
    table = {"kind": "tables", "chunks": [{"files": [{"size": LONG_JOB_BYTES}, {"size": 1}]}]}
    branch = {"kind": "catalog", "layers": [{"file_bytes": LONG_JOB_BYTES}, {"file_bytes": 1}]}
    specs = [
        long,
        short,
        profiles,
        table,
        branch,
        {},
        {"kind": "tsdb", "sources": 7},
        {"kind": "tsdb", "sources": [{}]},
    ]
    pairs = [(f"job-{number}", "token") for number in range(len(specs))]
    messages = messages_of(pairs, dict(zip(pairs, specs, strict=True)))
    assert messages == [[pairs[0]], [pairs[3]], [pairs[4]], [pairs[1], pairs[2], *pairs[5:]]]
    assert messages_of(pairs[:1], {pairs[0]: long}) == [[pairs[0]]]
    assert messages_of([], {}) == []


def test_an_unknown_kind_is_an_error_with_the_known_kinds(merger: EngineMerger) -> None:
    error = merge(merger, {"job": {"kind": "metrics"}})["job"]
    assert all(kind in str(error) for kind in engine_lanes())


class Session:
    """A Spark that is alive and does nothing."""

    def range(self, count: int) -> Session:
        return self

    def count(self) -> int:
        return 1


def spark_merger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, store_url: str = "s3://profiles"
) -> SparkMerger:
    monkeypatch.setenv("SPARK_MASTER", master)
    monkeypatch.setattr("tasks.spark_merger.make_session", lambda settings: Session())
    monkeypatch.setattr("tasks.spark_merger.probe", lambda session: {})
    merger = SparkMerger(store_url, tmp_path)
    merger.start()
    return merger


def test_on_spark_each_kind_goes_its_way_and_the_trouble_of_one_is_not_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, store: ObjectStore, blocks_job: TsdbMergeSpec
) -> None:
    result = TsdbMergeResult(sources=(), block=None)
    table, of_table = tables_job(tmp_path), TableMergeResult(chunks=())

    def no_profiles(session: object, specs: list[object], store_url: str, **_: object) -> dict[str, Any]:
        raise ValueError("no profiles today")

    monkeypatch.setattr("spark.lanes.profiles.merge.run", no_profiles)
    monkeypatch.setattr("spark.lanes.tsdb.merge.run", lambda session, specs, **_: {spec.job: result for spec in specs})
    monkeypatch.setattr(
        "spark.lanes.tables.merge.run", lambda session, specs, **_: {spec.job: of_table for spec in specs}
    )
    merger = spark_merger(monkeypatch, tmp_path, "local[2]")
    profiles = segment_job(store, "profiles", 7)
    specs = {"blocks": blocks_job.to_json(), profiles.job: profiles.to_json(), table.job: table.to_json()}
    outcomes = merge(merger, specs)
    assert outcomes["blocks"] == result.to_json()
    assert outcomes[table.job] == of_table.to_json()
    assert isinstance(outcomes[profiles.job], ValueError)


def test_a_bucket_that_executors_elsewhere_cannot_see_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, blocks_job: TsdbMergeSpec
) -> None:
    merger = spark_merger(monkeypatch, tmp_path, "spark://127.0.0.1:7077")
    table = tables_job(tmp_path)
    outcomes = merge(merger, {"blocks": blocks_job.to_json(), table.job: table.to_json()})
    for job, url in (("blocks", blocks_job.bucket_url), (table.job, table.url)):
        error = outcomes[job]
        assert isinstance(error, BadSparkSetting)
        assert url in str(error)
