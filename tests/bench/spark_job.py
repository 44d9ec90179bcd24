"""Overhead of a Spark job: minimal merges on a warm session, one at a time and all together.

Each merge has two small sources with one dataset, so that the overhead dominates: plan, request, Spark job, rows,
result block. The session runs in its own process, as a node's does, and its start is measured there.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.storage import open_store
from tests.bench.figures import Figures

NAME = "spark_job"
JOBS = 32
WARM_UP_ROUNDS = 2
ROUNDS = 3
ROUNDS_FULL = 10


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess and return its figures."""
    rounds = ROUNDS_FULL if full else ROUNDS
    program = [sys.executable, "-m", "tests.bench.spark_job", str(rounds)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    return Figures({"jobs": JOBS, "rounds": rounds, "master": "local[*]"}, json.loads(answer.stdout.splitlines()[-1]))


def measure(rounds: int) -> dict[str, float]:
    """Return the figures; seconds and milliseconds of wall time, medians over rounds."""
    from spark.lanes.profiles import merge as profile_merge
    from spark.probe import probe
    from spark.session import make_session
    from spark.settings import SparkSettings

    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        spark = make_session(SparkSettings(scratch=Path(folder) / "spark"))
        probe(spark)
        session_start_s = time.perf_counter() - started
        specs, store_url = _minimal_jobs(Path(folder) / "store")

        def merge(tag: str, batch: list[ProfileMergeSpec]) -> float:
            begun = time.perf_counter()
            outcomes = profile_merge.run(spark, batch, store_url, tag=tag)
            seconds = time.perf_counter() - begun
            assert all(isinstance(outcome, ProfileMergeResult) for outcome in outcomes.values()), outcomes
            return 1000 * seconds

        for number in range(WARM_UP_ROUNDS):
            merge(f"warm-{number}", specs)
            merge(f"warm-one-{number}", specs[:1])
        single = [merge(f"single-{round_}-{spec.job}", [spec]) for round_ in range(rounds) for spec in specs]
        batched = [merge(f"batch-{round_}", specs) / len(specs) for round_ in range(rounds)]
        spark.stop()
    return {
        "ms_per_job": statistics.median(single),
        "batched_ms_per_job": statistics.median(batched),
        "session_start_s": session_start_s,
    }


def _minimal_jobs(folder: Path) -> tuple[list[ProfileMergeSpec], str]:
    from tests.spark.random_jobs import merge_job

    store = open_store(str(folder))
    jobs = [
        merge_job(f"job-{n}", store, first=2 * n, count=2, fence=n, tenants=("anna",), services=("api",))
        for n in range(JOBS)
    ]
    return jobs, store.url


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
