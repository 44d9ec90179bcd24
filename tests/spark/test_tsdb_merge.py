"""Merges of Prometheus blocks on a real Spark: the engine's own bytes, errors of one job only, and a clean end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark import SparkFiles, cloudpickle
from pyspark.sql import SparkSession

from engine.core.errors import BadObject, MergeCancelled
from engine.core.scratch_folders import PREFIX, sweep_scratch
from engine.formats.prometheus.meta import decode_meta
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.lanes.tsdb.merge import merge_job
from engine.protocol.messages import Progress
from engine.storage import InvalidStoreUrl, ObjectStore, open_store
from spark.errors import SparkJobFailed
from spark.lanes.tsdb import merge as tsdb_merge
from tests.faults.stalling_proxy import StallingProxy, stalling_proxy
from tests.object_stores import S3Server
from tests.processes import wait_until
from tests.spark.test_profile_merge import DEADLINE_SECONDS, jobs_started, kill_executors_python
from tests.tsdb_blocks import FOLDER, replicas_job

pytestmark = pytest.mark.spark
Results = dict[str, tsdb_merge.Outcome]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def tag() -> str:
    return f"test-{uuid4().hex}"


def partitions(spec: TsdbMergeSpec, count: int) -> list[TsdbMergeSpec]:
    return [replace(spec, job=f"{spec.job}-{number}", partition=number, partitions=count) for number in range(count)]


def results(store: ObjectStore, specs: list[TsdbMergeSpec]) -> dict[str, bytes]:
    """Return the objects of the results and delete them."""
    found = {
        info.key: store.get(info.key) for spec in specs for info in list(store.list(f"{FOLDER}{spec.result_id()}/"))
    }
    for key in found:
        store.delete(key)
    return found


def timeless(outcome: tsdb_merge.Outcome) -> tsdb_merge.Outcome:
    """Return a result without the time of its upload."""
    if isinstance(outcome, Exception) or outcome.block is None:
        return outcome
    meta = decode_meta(outcome.block.meta)
    assert meta.thanos is not None
    told = {name: value for name, value in meta.thanos.items() if name != "upload_time"}
    return replace(outcome, block=replace(outcome.block, meta=repr(replace(meta, thanos=told)).encode()))


def in_process(specs: list[TsdbMergeSpec], store: ObjectStore, folder: Path) -> tuple[Results, dict[str, bytes]]:
    outcomes: Results = {spec.job: timeless(merge_job.run(spec, store, scratch=folder)) for spec in specs}
    return outcomes, results(store, specs)


def on_spark(spark: SparkSession, specs: list[TsdbMergeSpec], tag: str) -> Results:
    return {job: timeless(outcome) for job, outcome in tsdb_merge.run(spark, specs, tag=tag).items()}


def scratch_folders() -> list[Path]:
    return list(Path(SparkFiles.getRootDirectory()).glob(f"{PREFIX}*"))


@pytest.mark.parametrize("small_bytes", [0, 1 << 30])
def test_the_bytes_are_those_of_a_merge_in_one_process_whatever_shares_a_spark_job(
    spark: SparkSession,
    store: ObjectStore,
    tag: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    small_bytes: int,
) -> None:
    monkeypatch.setattr(tsdb_merge, "SMALL_JOB_BYTES", small_bytes)
    group = replicas_job("group", store, tmp_path / "blocks", count=3)
    other = replicas_job("other", store, tmp_path / "blocks", first=10, fence=8)
    specs = [*partitions(group, 4), other]
    expected, objects = in_process(specs, store, tmp_path / "scratch")
    assert len(objects) == 2 * len(specs)
    before = jobs_started(spark)
    assert on_spark(spark, specs, tag) == expected
    assert jobs_started(spark) - before == (1 if small_bytes else len(specs))
    assert results(store, specs) == objects
    assert scratch_folders() == []


def test_the_same_works_over_http(spark: SparkSession, s3_store: ObjectStore, tag: str, tmp_path: Path) -> None:
    specs = partitions(replicas_job("job", s3_store, tmp_path / "blocks"), 2)
    expected, objects = in_process(specs, s3_store, tmp_path / "scratch")
    assert on_spark(spark, specs, tag) == expected
    assert results(s3_store, specs) == objects


def test_a_damaged_source_fails_its_own_job_only(
    spark: SparkSession, store: ObjectStore, tag: str, tmp_path: Path
) -> None:
    specs = {
        job: replicas_job(job, store, tmp_path / "blocks", first=10 * number)
        for number, job in enumerate(["good", "missing", "flipped", "nowhere"])
    }
    specs["nowhere"] = replace(specs["nowhere"], bucket_url="ftp://elsewhere")
    store.delete(f"{FOLDER}{specs['missing'].sources[1].id}/index")
    key = f"{FOLDER}{specs['flipped'].sources[0].id}/chunks/000001"
    data = bytearray(store.get(key))
    data[40] ^= 0xFF
    store.put(key, bytes(data))

    before = jobs_started(spark)
    outcomes = tsdb_merge.run(spark, list(specs.values()), tag=tag)
    assert jobs_started(spark) - before == 1
    assert isinstance(outcomes["good"], TsdbMergeResult)
    assert isinstance(outcomes["nowhere"], InvalidStoreUrl)
    missing, flipped = outcomes["missing"], outcomes["flipped"]
    assert isinstance(missing, BadObject)
    assert (missing.object_name, missing.section) == (f"{FOLDER}{specs['missing'].sources[1].id}", "index")
    assert isinstance(flipped, BadObject)
    assert (flipped.object_name, flipped.section) == (f"{FOLDER}{specs['flipped'].sources[0].id}", "chunks/000001")
    assert 0 <= flipped.offset <= 40
    assert results(store, [specs["missing"], specs["flipped"]]) == {}
    assert scratch_folders() == []


def test_a_cancelled_job_writes_nothing_and_the_others_finish(
    spark: SparkSession, store: ObjectStore, tag: str, tmp_path: Path
) -> None:
    specs = [replicas_job(job, store, tmp_path / "blocks", first=10 * number) for number, job in enumerate("ab")]
    outcomes = tsdb_merge.run(spark, specs, tag=tag, cancelled=lambda job: job == "a")
    assert isinstance(outcomes["a"], MergeCancelled)
    assert isinstance(outcomes["b"], TsdbMergeResult)
    assert results(store, specs[:1]) == {}


def test_progress_counts_source_bytes(spark: SparkSession, store: ObjectStore, tag: str, tmp_path: Path) -> None:
    seen: list[tuple[str, Progress]] = []
    spec = replicas_job("job", store, tmp_path / "blocks")
    tsdb_merge.run(spark, [spec], tag=tag, progress=lambda *report: seen.append(report))
    total = merge_job.source_bytes(spec)
    assert seen[0] == ("job", Progress(done=0, total=total, phase="download"))
    assert ("job", Progress(done=total, total=total, phase="upload")) in seen
    assert not list(Path(SparkFiles.getRootDirectory()).glob("lithify-progress-*"))


def test_the_code_travels_as_a_name() -> None:
    assert len(cloudpickle.dumps(tsdb_merge.merge_blocks_of)) < 100


class Stuck:
    """A job one of whose sources cannot be read: the store does not answer. Beside it a job that can be merged."""

    def __init__(self, proxy: StallingProxy, store: ObjectStore, specs: list[TsdbMergeSpec]) -> None:
        self.proxy, self.store, self.specs = proxy, store, specs


@pytest.fixture
def stuck(s3_server: S3Server, tmp_path: Path) -> Iterator[Stuck]:
    bucket = s3_server.new_bucket()
    direct = open_store(s3_server.store_url(bucket))
    good = replicas_job("good", direct, tmp_path / "blocks", fence=1)
    bad = replicas_job("bad", direct, tmp_path / "blocks", first=50, fence=2)
    direct.close()
    with stalling_proxy(s3_server.endpoint, f"{bad.sources[1].id}/index") as proxy:
        store = open_store(S3Server(proxy.endpoint).store_url(bucket))
        yield Stuck(proxy, store, [replace(spec, bucket_url=store.url) for spec in (good, bad)])
        store.close()


def run_aside(run: Callable[[], Results]) -> Future[Results]:
    """Start ``run`` in a thread of its own and return its future."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future


@pytest.mark.parametrize("small_bytes", [0, 1 << 30])
def test_a_lost_job_is_interrupted_while_it_reads_and_leaves_no_scratch(
    spark: SparkSession, stuck: Stuck, tag: str, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(tsdb_merge, "SMALL_JOB_BYTES", small_bytes)
    lost = threading.Event()
    specs = stuck.specs if not small_bytes else stuck.specs[1:]
    future = run_aside(
        lambda: tsdb_merge.run(spark, specs, tag=tag, cancelled=lambda job: job == "bad" and lost.is_set())
    )
    stuck.proxy.wait_for_reader()
    assert len(scratch_folders()) >= 1
    lost.set()
    outcomes = future.result(DEADLINE_SECONDS)
    assert isinstance(outcomes["bad"], MergeCancelled)
    assert all(isinstance(outcome, TsdbMergeResult) for job, outcome in outcomes.items() if job != "bad")
    assert results(stuck.store, stuck.specs[1:]) == {}
    # Spark ends an interrupted task's Python a moment later; who sweeps next finds its folder abandoned.
    wait_until(lambda: sweep_scratch(Path(SparkFiles.getRootDirectory())) or not scratch_folders(), "a swept scratch")
    assert scratch_folders() == []


def test_a_job_that_kills_executors_does_not_take_others_with_it(spark: SparkSession, stuck: Stuck, tag: str) -> None:
    future = run_aside(lambda: tsdb_merge.run(spark, stuck.specs, tag=tag))
    for _ in range(2):  # In the common Spark job, and in its own.
        stuck.proxy.wait_for_reader()
        kill_executors_python()
    outcomes = future.result(DEADLINE_SECONDS)
    assert isinstance(outcomes["good"], TsdbMergeResult)
    assert isinstance(outcomes["bad"], SparkJobFailed)


def test_progress_is_reported_while_a_task_runs(spark: SparkSession, stuck: Stuck, tag: str) -> None:
    """The second source does not come; progress of the first is reported meanwhile."""
    bad = stuck.specs[1]
    first = sum(file.size for file in bad.sources[0].files)
    seen = threading.Event()
    lost = threading.Event()

    def note(job: str, progress: Progress) -> None:
        if progress == Progress(done=first, total=merge_job.source_bytes(bad), phase="download"):
            seen.set()

    future = run_aside(
        lambda: tsdb_merge.run(spark, [bad], tag=tag, cancelled=lambda job: lost.is_set(), progress=note)
    )
    assert seen.wait(DEADLINE_SECONDS)
    lost.set()
    assert isinstance(future.result(DEADLINE_SECONDS)["bad"], MergeCancelled)
