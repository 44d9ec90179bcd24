"""Profile merges on a real Spark: the engine's own bytes, errors of one job only, and an end when unwanted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from engine.core.errors import BadObject, MergeCancelled, MergeRefused
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.profiles.merge import merge
from engine.protocol.messages import Progress
from engine.storage import ObjectNotFound, ObjectStore, open_store
from spark.errors import SparkJobFailed
from spark.lanes.profiles import merge as profile_merge
from tests.faults.stalling_proxy import StallingProxy, stalling_proxy
from tests.object_stores import S3Server
from tests.spark.random_jobs import merge_job

pytestmark = pytest.mark.spark
DEADLINE_SECONDS = 60.0
Results = dict[str, profile_merge.Outcome]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(str(tmp_path / "store"))


@pytest.fixture
def tag() -> str:
    return f"test-{uuid4().hex}"


def in_process(spec: ProfileMergeSpec, store: ObjectStore, folder: Path) -> tuple[ProfileMergeResult, dict[str, bytes]]:
    """Run a job in this process and return the result and its objects, which are deleted again."""
    result = merge.run(spec, store, scratch=Scratch(folder))
    blocks = {block.key: store.get(block.key) for block in result.blocks}
    for key in blocks:
        store.delete(key)
    return result, blocks


def keys(store: ObjectStore, prefix: str) -> list[str]:
    return [info.key for info in store.list(prefix)]


@pytest.mark.parametrize("way", ["inline", "scratch objects", "cut by series", "capped"])
def test_the_bytes_are_those_of_a_merge_in_one_process(
    spark: SparkSession, store: ObjectStore, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    spec = merge_job("job", store, count=5, stacks=200)
    if way == "scratch objects":
        monkeypatch.setattr(profile_merge, "INLINE_BYTES", 0)
    if way == "cut by series":
        spec = replace(spec, task_memory_bytes=1 << 16)
    if way == "capped":
        spec = replace(spec, result_bytes_max=1 << 15)
    expected, blocks = in_process(spec, store, tmp_path / "scratch")
    assert len(blocks) >= 2
    assert profile_merge.run(spark, [spec], store.url, tag=tag) == {"job": expected}
    assert {key: store.get(key) for key in blocks} == blocks
    assert keys(store, "blocks/") == sorted(blocks)
    assert keys(store, "scratch/") == []


def test_the_same_works_over_http(spark: SparkSession, s3_store: ObjectStore, tag: str, tmp_path: Path) -> None:
    spec = merge_job("job", s3_store)
    expected, blocks = in_process(spec, s3_store, tmp_path)
    assert profile_merge.run(spark, [spec], s3_store.url, tag=tag) == {"job": expected}
    assert {key: s3_store.get(key) for key in blocks} == blocks


def test_many_jobs_share_a_spark_job_and_each_has_its_result(
    spark: SparkSession, store: ObjectStore, tag: str, tmp_path: Path
) -> None:
    specs = [merge_job(f"job-{number}", store, first=10 * number, count=2, fence=number) for number in range(5)]
    before = jobs_started(spark)
    results = profile_merge.run(spark, specs, store.url, tag=tag)
    assert jobs_started(spark) - before == 1
    assert results == {spec.job: in_process(spec, store, tmp_path)[0] for spec in specs}


def jobs_started(spark: SparkSession) -> int:
    """Return how many Spark jobs there have been so far."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def test_a_large_job_has_a_spark_job_of_its_own(
    spark: SparkSession, store: ObjectStore, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [
        merge_job("small-1", store, count=1),
        merge_job("large", store, first=10, count=3),
        merge_job("small-2", store, first=20, count=1),
    ]
    monkeypatch.setattr(profile_merge, "SMALL_JOB_BYTES", 50_000)
    before = jobs_started(spark)
    results = profile_merge.run(spark, specs, store.url, tag=tag)
    assert jobs_started(spark) - before == 2
    assert all(isinstance(results[spec.job], ProfileMergeResult) for spec in specs)


def flip(store: ObjectStore, key: str, position: int) -> None:
    data = bytearray(store.get(key))
    data[position] ^= 0xFF
    store.put(key, bytes(data))


def test_a_bad_source_fails_its_own_job_only(spark: SparkSession, store: ObjectStore, tag: str) -> None:
    specs = {
        job: merge_job(job, store, first=10 * number, count=2)
        for number, job in enumerate(["good", "missing", "flipped", "refused"])
    }
    store.delete(specs["missing"].sources[1].key)
    bad = specs["flipped"].sources[0]
    flip(store, bad.key, bad.size // 8)
    specs["refused"] = replace(specs["refused"], shard=77)
    results = profile_merge.run(spark, list(specs.values()), store.url, tag=tag)

    assert isinstance(results["good"], ProfileMergeResult)
    missing, flipped = results["missing"], results["flipped"]
    assert isinstance(missing, ObjectNotFound)
    assert missing.key == specs["missing"].sources[1].key
    assert isinstance(flipped, BadObject)
    assert flipped.object_name == bad.key
    assert flipped.section
    assert isinstance(results["refused"], MergeRefused)
    assert len(keys(store, "blocks/")) == len(results["good"].blocks)


def test_a_failing_job_leaves_no_scratch_objects(
    spark: SparkSession, store: ObjectStore, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_merge, "INLINE_BYTES", 0)
    spec = merge_job("job", store)
    flip(store, spec.sources[0].key, spec.sources[0].size // 8)
    assert isinstance(profile_merge.run(spark, [spec], store.url, tag=tag)["job"], BadObject)
    assert keys(store, "blocks/") == keys(store, "scratch/") == []


def test_a_cancelled_job_writes_nothing_and_the_others_finish(
    spark: SparkSession, store: ObjectStore, tag: str
) -> None:
    specs = [merge_job(job, store, count=2, fence=number) for number, job in enumerate("ab")]
    results = profile_merge.run(spark, specs, store.url, tag=tag, cancelled=lambda job: job == "a")
    assert isinstance(results["a"], MergeCancelled)
    assert isinstance(results["b"], ProfileMergeResult)
    assert len(keys(store, "blocks/")) == len(results["b"].blocks)


def test_progress_counts_source_bytes(spark: SparkSession, store: ObjectStore, tag: str) -> None:
    seen: list[tuple[str, Progress]] = []
    spec = merge_job("job", store)
    profile_merge.run(spark, [spec], store.url, tag=tag, progress=lambda *report: seen.append(report))
    total = seen[0][1].total
    assert 0 < total <= sum(source.size for source in spec.sources)
    assert seen == [
        ("job", Progress(done=0, total=total, phase="merge")),
        ("job", Progress(done=total, total=total, phase="write")),
    ]


def test_the_code_travels_as_a_name() -> None:
    assert len(cloudpickle.dumps(profile_merge.merge_units)) < 100


class Stuck:
    """A job whose second source cannot be read: the store does not answer. Beside it a job that can be merged."""

    def __init__(self, proxy: StallingProxy, store: ObjectStore, specs: list[ProfileMergeSpec]) -> None:
        self.proxy, self.store, self.specs = proxy, store, specs


@pytest.fixture
def stuck(s3_server: S3Server) -> Iterator[Stuck]:
    bucket = s3_server.new_bucket()
    direct = open_store(s3_server.store_url(bucket))
    good = merge_job("good", direct, count=2, fence=1)
    # One dataset, so that one reader at a time is held back.
    bad = merge_job("bad", direct, first=50, count=2, fence=2, tenants=["anna"], services=["api"])
    direct.close()
    with stalling_proxy(s3_server.endpoint, bad.sources[1].id) as proxy:
        store = open_store(S3Server(proxy.endpoint).store_url(bucket))
        yield Stuck(proxy, store, [good, bad])
        store.close()


def run_aside(run: Callable[[], Results]) -> Future[Results]:
    """Start ``run`` in a thread of its own and return its future."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(run)
    pool.shutdown(wait=False)
    return future


def test_a_lost_job_is_interrupted_while_it_reads(spark: SparkSession, stuck: Stuck, tag: str) -> None:
    lost = threading.Event()
    future = run_aside(
        lambda: profile_merge.run(spark, stuck.specs, stuck.store.url, tag=tag, cancelled=lambda job: lost.is_set())
    )
    stuck.proxy.wait_for_reader()
    lost.set()
    results = future.result(DEADLINE_SECONDS)
    assert {type(result) for result in results.values()} == {MergeCancelled}
    assert keys(stuck.store, "blocks/") == []


def test_an_interrupted_batch_finishes_its_jobs_that_are_not_cancelled(
    spark: SparkSession, stuck: Stuck, tag: str
) -> None:
    lost: set[str] = set()
    future = run_aside(
        lambda: profile_merge.run(spark, stuck.specs, stuck.store.url, tag=tag, cancelled=lost.__contains__)
    )
    stuck.proxy.wait_for_reader()
    lost.add("bad")
    profile_merge.interrupt(spark, tag)
    results = future.result(DEADLINE_SECONDS)
    assert isinstance(results["bad"], MergeCancelled)
    assert isinstance(results["good"], ProfileMergeResult)
    assert len(keys(stuck.store, "blocks/")) == len(results["good"].blocks)


def test_an_interrupt_of_nothing_is_harmless(spark: SparkSession, store: ObjectStore, tag: str) -> None:
    profile_merge.interrupt(spark, tag)
    spec = merge_job("job", store)
    assert isinstance(profile_merge.run(spark, [spec], store.url, tag=tag)["job"], ProfileMergeResult)


def kill_executors_python() -> None:
    """Kill the Pythons that merge for this process's Spark, as a crashing kernel would."""
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # One that ended by itself meanwhile, too.
            if "pyspark.daemon" in child.cmdline() and not child.children():
                child.send_signal(signal.SIGKILL)


def test_a_job_that_kills_executors_does_not_take_others_with_it(spark: SparkSession, stuck: Stuck, tag: str) -> None:
    future = run_aside(lambda: profile_merge.run(spark, stuck.specs, stuck.store.url, tag=tag))
    for _ in range(2):  # In the common Spark job, and in its own.
        stuck.proxy.wait_for_reader()
        kill_executors_python()
    results = future.result(DEADLINE_SECONDS)
    assert isinstance(results["good"], ProfileMergeResult)
    assert isinstance(results["bad"], SparkJobFailed)
    assert "crashed" in str(results["bad"]) or "exited" in str(results["bad"])
