"""Scan of one month before and after its files are merged, by Spark and by DuckDB, warm, the fastest of some rounds.

The query needs two of five columns of every row: bytes by service. Readers get the file names, as from a manifest.
Nearly all of the time is Spark's, which lists and opens every small file: one scan before takes seconds, one after a
tenth of that, so few rounds are of the first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.figures import Figures
from tests.bench.table_data import tasks_before_and_after, write_days

NAME = "table_read"
DAYS = 30
FILES_PER_DAY = 40
ROWS_PER_FILE = 300
FILES_PER_DAY_FULL = 288
ROUNDS_BEFORE, ROUNDS_BEFORE_FULL, ROUNDS_AFTER = 1, 3, 4


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess and return its figures."""
    files = FILES_PER_DAY_FULL if full else FILES_PER_DAY
    rounds = ROUNDS_BEFORE_FULL if full else ROUNDS_BEFORE
    program = [sys.executable, "-m", "tests.bench.table_read", str(files), str(rounds)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    parameters: dict[str, object] = {"days": DAYS, "files_per_day": files, "rows_per_file": ROWS_PER_FILE}
    return Figures(parameters, json.loads(answer.stdout.splitlines()[-1]))


def measure(files_per_day: int, rounds_before: int) -> dict[str, float]:
    """Return the speed-up of the scan, and its seconds of wall time."""
    import duckdb

    from engine.lanes.tables.merge import merge_job
    from engine.storage import open_store
    from spark.session import make_session
    from spark.settings import SparkSettings

    with tempfile.TemporaryDirectory() as folder:
        (root := Path(folder) / "table").mkdir()
        spec = write_days(root, DAYS, files_per_day, ROWS_PER_FILE)
        result = merge_job.run(spec, open_store(spec.url), scratch=Path(folder) / "scratch")
        before = [str(root / file.path) for chunk in spec.chunks for file in chunk.files]
        after = [str(root / file.path) for file in result.outputs]
        spark = make_session(SparkSettings(scratch=Path(folder) / "spark"))

        def by_spark(paths: list[str]) -> object:
            rows = spark.read.parquet(*paths).groupBy("service").sum("bytes").collect()
            return sorted((row[0], row[1]) for row in rows)

        def by_duckdb(paths: list[str]) -> object:
            sql = f"select service, sum(bytes)::bigint from read_parquet({paths}) group by 1 order by 1"
            return duckdb.sql(sql).fetchall()

        # The first results warm each reader up; the JVM starts with the small round.
        assert by_spark(after) == by_spark(before) == by_duckdb(before) == by_duckdb(after)
        seconds = {
            (reader.__name__, len(paths)): _best(lambda reader=reader, paths=paths: reader(paths), rounds)
            for reader in (by_spark, by_duckdb)
            for paths, rounds in ((before, rounds_before), (after, ROUNDS_AFTER))
        }
        spark.stop()
        tasks, tasks_after = tasks_before_and_after(spec, result)
        assert tasks
        assert not tasks_after, "the second plan is empty"
    return {
        "speedup_spark": seconds["by_spark", len(before)] / seconds["by_spark", len(after)],
        "speedup_duckdb": seconds["by_duckdb", len(before)] / seconds["by_duckdb", len(after)],
        "spark_before_s": seconds["by_spark", len(before)],
        "duckdb_before_s": seconds["by_duckdb", len(before)],
        "files_before": len(before),
        "files_after": len(after),
        "second_plan_tasks": tasks_after,
    }


def _best(work: Callable[[], object], rounds: int) -> float:
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
