"""Merge of a thousand small sorted Parquet files to the target size, compared with plain Spark on the same files.

Both run in one warm session on this machine; the figures compare the CPU time of its JVM and all Python processes.
Plain Spark reads, sorts by time and writes; for the roll-up it groups by hour, service and status instead.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.lanes.tables.jobs import Metric, RollUp, TableMergeResult, TableMergeSpec
from tests.bench.figures import Figures, process_seconds
from tests.bench.table_data import tasks_before_and_after, write_days

NAME = "table_merge"
DAYS = 4
FILES = 1000
WARM_UP_FILES = 30
ROWS_PER_FILE = 2_000
ROWS_PER_FILE_FULL = 20_000
ROLL_UP = RollUp(
    dimensions=("service", "status"),
    metrics=(
        Metric(name="requests", function="count"),
        Metric(name="bytes", function="sum", column="bytes"),
        Metric(name="slowest", function="max", column="seconds"),
    ),
    granularity_ms=3_600_000,
)


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess and return its figures."""
    rows = ROWS_PER_FILE_FULL if full else ROWS_PER_FILE
    program = [sys.executable, "-m", "tests.bench.table_merge", str(rows)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    parameters: dict[str, object] = {"files": FILES, "rows_per_file": rows, "days": DAYS, "master": "local[*]"}
    return Figures(parameters, json.loads(answer.stdout.splitlines()[-1]))


def measure(rows_per_file: int) -> dict[str, float]:
    """Return the figures; megabytes are of the source files."""
    from spark.session import make_session
    from spark.settings import SparkSettings

    with tempfile.TemporaryDirectory() as folder:
        (sources := Path(folder) / "sources").mkdir()
        (warming := Path(folder) / "warming").mkdir()
        spec = write_days(sources, DAYS, FILES // DAYS, rows_per_file)
        warm_up = write_days(warming, 2, WARM_UP_FILES // 2, rows_per_file)
        spark = make_session(SparkSettings(scratch=Path(folder) / "spark"))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        results: list[TableMergeResult] = []
        seconds: dict[str, float] = {}
        for job, root in ((warm_up, warming), (spec, sources)):
            # The last round counts; the first warms the JVM up.
            seconds = _round(spark, job, root, Path(folder), results)
        spark.stop()
    tasks, tasks_after = tasks_before_and_after(spec, results[-2])
    assert tasks
    assert not tasks_after, "the second plan is empty"
    size = sum(file.size for chunk in spec.chunks for file in chunk.files)
    rows = sum(file.rows for chunk in spec.chunks for file in chunk.files)
    return {
        "mb_per_s_core": size / 1e6 / seconds["ours"],
        "rows_per_s_core": rows / seconds["ours"],
        "ratio_to_plain_spark": seconds["plain"] / seconds["ours"],
        "ratio_to_plain_spark_rollup": seconds["plain rolled up"] / seconds["ours rolled up"],
        "wall_ratio_to_plain_spark": seconds["plain, wall"] / seconds["ours, wall"],
        "second_plan_tasks": tasks_after,
    }


def _round(
    spark: Any, spec: TableMergeSpec, sources: Path, folder: Path, results: list[TableMergeResult]
) -> dict[str, float]:
    """Run all variants once and return the seconds of each; append the results of our jobs to ``results``."""
    from pyspark.sql import functions as f

    pattern = str(sources / "day-*.parquet")
    output = str(folder / "plain")

    def ours(job: TableMergeSpec) -> None:
        from spark.lanes.tables import merge as table_merge

        (outcome,) = table_merge.run(spark, [job], tag=f"bench-{time.monotonic_ns()}").values()
        assert isinstance(outcome, TableMergeResult), outcome
        results.append(outcome)

    def plain() -> None:
        spark.read.parquet(pattern).sort("at").write.mode("overwrite").parquet(output)

    def plain_roll_up() -> None:
        keys = [f.date_trunc("hour", "at").alias("at"), "service", "status"]
        metrics = [f.count("*").alias("requests"), f.sum("bytes").alias("bytes"), f.max("seconds").alias("slowest")]
        rolled = spark.read.parquet(pattern).groupBy(*keys).agg(*metrics)
        rolled.sort("at", "service", "status").write.mode("overwrite").parquet(output)

    found: dict[str, float] = {}
    work: dict[str, Callable[[], None]] = {
        "plain": plain,
        "ours": lambda: ours(spec),
        "plain rolled up": plain_roll_up,
        "ours rolled up": lambda: ours(replace(spec, roll_up=ROLL_UP, fence=2)),
    }
    for name, do in work.items():
        before, started = process_seconds(os.getpid()), time.perf_counter()
        do()
        found[name] = process_seconds(os.getpid()) - before
        found[f"{name}, wall"] = time.perf_counter() - started
    return found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
