"""A merge on executors elsewhere: a real standalone master and worker, with the packed archive and S3.

The worker has nothing of this project: another working directory, no packages, the base Python. Everything comes from
the archive and the store.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

import pyspark
import pytest

from engine.profiles import merge, series_index
from engine.profiles.merge_model import Scratch
from engine.storage import open_store
from tests.object_stores import CREDENTIALS, S3Server, free_port
from tests.spark.random_jobs import merge_job

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
def standalone(tmp_path: Path) -> Iterator[str]:
    """A standalone master and one worker with two cores; yields the master's URL."""
    port = free_port()
    master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    with spark_process(master, r"I have been elected leader|New state: ALIVE", tmp_path / "master"):
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "2"]
        worker += ["--memory", "1g", "--work-dir", str(tmp_path / "work"), f"spark://127.0.0.1:{port}"]
        with spark_process(worker, r"Successfully registered with master", tmp_path / "worker"):
            yield f"spark://127.0.0.1:{port}"


def drive(store_url: str, specs: list[object], settings: Mapping[str, str]) -> dict[str, object]:
    """Run the driver program of a node and return what it told."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    answer = subprocess.run(
        [sys.executable, str(DRIVER), store_url],
        input=json.dumps(specs),
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-4000:]
    told: dict[str, object] = json.loads(answer.stdout.splitlines()[-1])
    return told


def test_a_standalone_cluster_merges_with_the_archive_and_s3(
    standalone: str, archive: Path, s3_server: S3Server, tmp_path: Path
) -> None:
    store = open_store(s3_server.store_url(s3_server.new_bucket()))
    specs = [merge_job(f"job-{number}", store, first=10 * number, fence=number) for number in range(3)]
    told = drive(
        store.url,
        [spec.to_json() for spec in specs],
        {"SPARK_MASTER": standalone, "SPARK_ARCHIVE": str(archive), "SPARK_DRIVER_HOST": "127.0.0.1"},
    )

    (where,) = told["engine"]  # type: ignore[misc]
    assert str(where).startswith(str(tmp_path / "work"))
    assert "/lithify/site-packages/engine/" in str(where)
    assert told["probe"]["kernel series_index"] == series_index.IMPLEMENTATION  # type: ignore[index]
    blocks = {info.key: store.get(info.key) for info in store.list("blocks/")}
    expected = {spec.job: merge.run(spec, store, scratch=Scratch(tmp_path / "scratch")) for spec in specs}
    assert told["results"] == {job: result.to_json() for job, result in expected.items()}
    assert {info.key: store.get(info.key) for info in store.list("blocks/")} == blocks
    store.close()
