"""A merge on executors elsewhere: a real standalone master and worker, with the packed archive and S3.

The worker has nothing of this project: another working directory, no packages, the base Python. Everything comes from
the archive and the store.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from queue import Empty, Queue

import psutil
import pyspark
import pytest

from engine.core.kernels import implementation_of
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.merge_model import Scratch
from engine.formats.profile_block.model import BlockMeta
from engine.lanes.profiles.merge import merge
from engine.lanes.tsdb.merge import merge_job
from engine.lanes.tsdb.results import read_tsdb_result
from engine.query.execution import QueryEngine
from engine.query.model import Damage, Question, blocks_of
from engine.query.sample_batches import SampleColumns, ShareReader
from engine.query.shares import cut_shares
from engine.storage import ObjectStore, open_store
from tests.faults.stalling_proxy import stalling_proxy
from tests.object_stores import CREDENTIALS, S3Server, free_port
from tests.spark.random_jobs import merge_job as profile_job
from tests.spark.service_double import block_to_json, service_double
from tests.tsdb_blocks import replicas_job

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
READY_SECONDS = 120
SPARK_HOME = Path(pyspark.__file__).parent
ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).with_name("standalone_driver.py")


@contextmanager
def spark_process(arguments: list[str], ready: str, folder: Path) -> Iterator[re.Match[str]]:
    """Run a class of Spark until the end of the block, which begins when its log has a line that matches ``ready``."""
    environment = {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "LITHIFY_EXECUTOR_PYTHON": sys._base_executable,
        **CREDENTIALS,
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }
    folder.mkdir(parents=True)
    process = subprocess.Popen(
        [str(SPARK_HOME / "bin/spark-class"), *arguments],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    lines: Queue[str] = Queue()
    reader = threading.Thread(target=_read_lines, args=(process, lines))
    reader.start()
    try:
        yield _wait_for_line(lines, ready)
    finally:
        process.kill()
        process.wait()
        reader.join()


def _read_lines(process: subprocess.Popen[str], lines: Queue[str]) -> None:
    assert process.stderr
    with process.stderr as log:
        for line in log:
            lines.put(line)


def _wait_for_line(lines: Queue[str], pattern: str) -> re.Match[str]:
    seen = []
    try:
        while True:
            seen.append(lines.get(timeout=READY_SECONDS))
            if found := re.search(pattern, seen[-1]):
                return found
    except Empty:
        raise AssertionError(f"no line with {pattern!r} in:\n{''.join(seen)}") from None


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    """The secret that the processes of the cluster share."""
    file = tmp_path / "secret"
    file.touch(mode=0o600)
    file.write_text(secrets.token_hex(32))
    return file


@pytest.fixture
def standalone(tmp_path: Path, secret_file: Path) -> Iterator[str]:
    """A standalone master and one worker with two cores, as the how-to sets them up; yields the master's URL."""
    port = free_port()
    properties = tmp_path / "spark.conf"
    properties.write_text(
        f"spark.authenticate true\nspark.authenticate.secret {secret_file.read_text()}\n"
        "spark.network.crypto.enabled true\nspark.network.crypto.saslFallback false\n"
    )
    secured = ["--properties-file", str(properties)]
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    master += secured
    with spark_process(master, r"I have been elected leader|New state: ALIVE", tmp_path / "master"):
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2"]
        worker += ["--memory", "1g", "--work-dir", str(tmp_path / "work"), *secured, f"spark://127.0.0.1:{port}"]
        with spark_process(worker, r"Successfully registered with master", tmp_path / "worker"):
            yield f"spark://127.0.0.1:{port}"


def drive(store_url: str, asked: object, settings: Mapping[str, str], folder: Path) -> dict[str, object]:
    """Run the driver program of a node in a folder and return its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    answer = subprocess.run(
        [sys.executable, str(DRIVER), store_url],
        input=json.dumps(asked),
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    told: dict[str, object] = json.loads(answer.stdout.splitlines()[-1])
    return told


def test_a_standalone_cluster_merges_with_the_archive_and_s3(
    standalone: str, secret_file: Path, archive: Path, s3_server: S3Server, tmp_path: Path
) -> None:
    store = open_store(s3_server.store_url(s3_server.new_bucket()))
    specs = [profile_job(f"job-{number}", store, first=10 * number, fence=number) for number in range(3)]
    group = replicas_job("blocks", store, tmp_path / "blocks", partitions=2)
    of_blocks = [replace(group, job=f"blocks-{number}", partition=number) for number in range(2)]
    sources = [
        (source.key, replace(decode_metadata(source.metadata), size=source.size))
        for spec in specs
        for source in spec.sources
    ]
    settings = node_settings(standalone, archive, secret_file, store.url)
    with tarfile.open(archive) as opened, service_double({"blocks": [block_to_json(*each) for each in sources]}) as url:
        opened.extractall(tmp_path / "driver/lithify", filter="data")  # as the how-to page says
        options = {"url": url, "credential": "lw_x", "tenant": "anna", "start": "0001-01-01", "end": "9999-01-01"}
        asked = {"specs": [spec.to_json() for spec in specs], "options": options | {"share_bytes": "100000"}}
        asked["blocks"] = [spec.to_json() for spec in of_blocks]
        told = drive(store.url, asked, settings, tmp_path / "driver")

    assert told["secret_shown"] == 0
    (where,) = told["engine"]  # type: ignore[misc]
    assert str(where).startswith(str(tmp_path / "work"))
    assert "/lithify/site-packages/engine/" in str(where)
    assert told["probe"]["kernel engine.formats.profile_block.series._series_index"] == implementation_of(
        "engine.formats.profile_block.series._series_index"
    )  # type: ignore[index]
    found = {job: read_tsdb_result(result).block for job, result in told["blocks"].items()}  # type: ignore[attr-defined]
    for spec in of_blocks:
        in_process = merge_job.run(spec, store, scratch=tmp_path / "scratch").block
        assert in_process is not None
        assert found[spec.job] is not None
        assert (found[spec.job].id, found[spec.job].files) == (in_process.id, in_process.files)
    blocks = {info.key: store.get(info.key) for info in store.list("blocks/")}
    expected = {spec.job: merge.run(spec, store, scratch=Scratch(tmp_path / "scratch")) for spec in specs}
    assert told["results"] == {job: result.to_json() for job, result in expected.items()}
    assert {info.key: store.get(info.key) for info in store.list("blocks/")} == blocks
    assert told["answer"] == answer_of(store, sources)
    store.close()


def test_an_executor_killed_while_it_merges_costs_another_attempt_only(
    standalone: str, secret_file: Path, archive: Path, s3_server: S3Server, tmp_path: Path
) -> None:
    """Spark starts another executor and runs its tasks again: the results are those of an undisturbed merge."""
    bucket = s3_server.new_bucket()
    store = open_store(s3_server.store_url(bucket))
    specs = [profile_job(f"job-{number}", store, first=10 * number, fence=number) for number in range(2)]
    sources = [(source.key, replace(decode_metadata(source.metadata), size=source.size)) for source in specs[0].sources]
    answered = {"blocks": [block_to_json(*each) for each in sources]}
    held = specs[0].sources[1].id
    with (
        tarfile.open(archive) as opened,
        service_double(answered) as url,
        stalling_proxy(s3_server.endpoint, held) as proxy,
        ThreadPoolExecutor(1) as pool,
    ):
        opened.extractall(tmp_path / "driver/lithify", filter="data")
        through = S3Server(proxy.endpoint).store_url(bucket)
        options = {"url": url, "credential": "lw_x", "tenant": "anna", "start": "0001-01-01", "end": "9999-01-01"}
        asked = {"specs": [spec.to_json() for spec in specs], "options": options, "blocks": []}
        settings = node_settings(standalone, archive, secret_file, through)
        driving = pool.submit(drive, through, asked, settings, tmp_path / "driver")
        proxy.wait_for_reader(READY_SECONDS)
        [executor] = executors_below(tmp_path / "work")
        executor.kill()
        proxy.release.set()
        told = driving.result()
    assert not executor.is_running()
    expected = {spec.job: merge.run(spec, store, scratch=Scratch(tmp_path / "scratch")) for spec in specs}
    assert told["results"] == {job: result.to_json() for job, result in expected.items()}
    store.close()


def node_settings(master: str, archive: Path, secret_file: Path, store_url: str) -> dict[str, str]:
    """Return the environment of a node that uses this cluster."""
    return {
        "SPARK_MASTER": master,
        "SPARK_ARCHIVE": str(archive),
        "SPARK_DRIVER_HOST": "127.0.0.1",
        "SPARK_SECRET_FILE": str(secret_file),
        "LITHIFY_EXECUTOR_PYTHON": sys._base_executable,
        "OBJECT_STORE_URL": store_url,
    }


def executors_below(folder: Path) -> list[psutil.Process]:
    """Return the JVMs of executors that a worker with this work folder has started."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            is_executor = any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
            if is_executor and Path(process.cwd()).is_relative_to(folder):
                found.append(process)
    return found


def answer_of(store: ObjectStore, sources: list[tuple[str, BlockMeta]]) -> list[int]:
    """Return number, values and frames of all samples, counted in this process."""

    def refuse(damage: Damage) -> None:
        raise damage.error

    question = Question(start_ms=0, end_ms=1 << 42)
    engine = QueryEngine(store)
    try:
        reader = ShareReader(engine, question, SampleColumns(columns=("stack", "value")), refuse)
        batches = [batch for share in cut_shares(blocks_of(sources), question) for batch in reader.batches(share)]
    finally:
        engine.close()
    values = [value for batch in batches for value in batch.column("value").to_pylist()]
    return [len(values), sum(values), sum(len(batch.column("stack").flatten()) for batch in batches)]
