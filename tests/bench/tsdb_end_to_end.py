"""Groups of three replicas on the whole way: download over HTTP, merge on Spark, upload. The commit is not in it.

The S3 server runs on the same machine and takes its share of it; it is one that answers out of files, because a server
in plain Python (moto) takes more than the merge. Sketch: a series has 1.6 KB in each replica, so that 60,000 series a
second are 290 MB downloaded and 95 MB uploaded each second, beside a third of a core for the merge itself.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from engine.protocol.tsdb_jobs import TsdbMergeResult, TsdbMergeSpec
from engine.storage import ObjectStore, open_store
from tests.bench.figures import Figures, process_seconds
from tests.bench.tsdb_blocks import INTERVAL_MS, START_MS, copied_block, write_block
from tests.file_s3 import running_file_s3
from tests.object_stores import CREDENTIALS
from tests.tsdb_blocks import merge_spec, put_block

NAME = "tsdb_end_to_end"
REPLICAS = 3
GROUPS = 2
SERIES, SERIES_FULL = 50_000, 100_000
ROUNDS, ROUNDS_FULL = 3, 5
MB = 1e6


def run(full: bool) -> Figures:
    """Measure in a fresh process and return its figures."""
    series, rounds = (SERIES_FULL, ROUNDS_FULL) if full else (SERIES, ROUNDS)
    program = [sys.executable, "-m", "tests.bench.tsdb_end_to_end", str(series), str(rounds)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True, env=os.environ | CREDENTIALS)
    parameters = {"groups": GROUPS, "replicas": REPLICAS, "series": series, "rounds": rounds, "master": "local[*]"}
    return Figures(parameters, json.loads(answer.stdout.splitlines()[-1]))


def measure(series: int, rounds: int) -> dict[str, float]:
    """Return the figures, medians over rounds of all groups at once; ``cpu_s`` is of all processes, the server too."""
    from spark.jobs import tsdb_merge
    from spark.probe import probe
    from spark.session import SparkSettings, make_session

    with tempfile.TemporaryDirectory() as folder, running_file_s3(Path(folder) / "s3") as (server, _):
        store = open_store(server.store_url("bucket"))
        specs = _write_groups(store, Path(folder) / "blocks", series)
        spark = make_session(SparkSettings(scratch=Path(folder) / "spark"))
        probe(spark)
        seconds, cpu_seconds = [], []
        for number in range(rounds + 1):
            started, cpu_started = time.perf_counter(), process_seconds(os.getpid())
            outcomes = tsdb_merge.run(spark, specs, tag=f"round-{number}")
            seconds.append(time.perf_counter() - started)
            cpu_seconds.append(process_seconds(os.getpid()) - cpu_started)
            for outcome in outcomes.values():
                assert isinstance(outcome, TsdbMergeResult), outcome
                assert outcome.block is not None
                assert outcome.series_read == REPLICAS * series
                for file in outcome.block.files:
                    store.delete(f"{specs[0].folder}{outcome.block.id}/{file.name}")
        spark.stop()
        store.close()
    read = sum(file.size for spec in specs for source in spec.sources for file in source.files)
    # The first round warms up.
    middle = statistics.median(seconds[1:])
    return {
        "series_per_s": GROUPS * series / middle,
        "input_mb_per_s": read / MB / middle,
        "seconds": middle,
        "cpu_s": statistics.median(cpu_seconds[1:]),
    }


def _write_groups(store: ObjectStore, folder: Path, series: int) -> Sequence[TsdbMergeSpec]:
    first = write_block(folder, 1, series)
    specs = []
    for group in range(GROUPS):
        copies = [copied_block(first, 100 + REPLICAS * group + replica) for replica in range(REPLICAS)]
        sources = [put_block(store, copy) for copy in copies]
        times = {"range_start_ms": START_MS, "range_end_ms": START_MS + 2 * INTERVAL_MS}
        specs.append(merge_spec(f"group-{group}", store, sources, **times))
    return specs


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))))
