"""Speed-up of a second Spark slot: one group cut into partitions by series, on one and on two slots.

Sources and results are in a folder, so that no server uses the machine's processors. Each number of slots has a new
process with its own session; the first round is a warm-up. The bytes of both results are compared. Estimate of the full
variant: 400,000 series in two replicas are 1.2 GB, which each of four partitions reads; with the merge itself (37,000
series per second) a round takes about 20 s on one slot.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.storage import open_store
from tests.bench.figures import Figures
from tests.bench.tsdb_blocks import INTERVAL_MS, START_MS, write_block
from tests.tsdb_blocks import merge_spec, put_block

NAME = "tsdb_scaling"
REPLICAS = 2
GAPS = 0.05
PARTITIONS = 4
SERIES, SERIES_FULL = 20_000, 400_000
ROUNDS, ROUNDS_FULL = 3, 2


def run(full: bool) -> Figures:
    """Run the benchmark with one slot and with two."""
    series, rounds = (SERIES_FULL, ROUNDS_FULL) if full else (SERIES, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        specs = _write_group(Path(folder), series)
        (Path(folder) / "specs.json").write_text(json.dumps([spec.to_json() for spec in specs]))
        one, two = (_measure(Path(folder), slots, rounds) for slots in (1, 2))
    assert one["checksums"] == two["checksums"]
    return Figures(
        parameters={"series": series, "replicas": REPLICAS, "partitions": PARTITIONS, "rounds": rounds},
        figures={
            "speedup": one["seconds"] / two["seconds"],
            "one_slot_s": one["seconds"],
            "two_slots_s": two["seconds"],
        },
    )


def _write_group(folder: Path, series: int) -> list[TsdbMergeSpec]:
    store = open_store(str(folder / "store"))
    blocks = [write_block(folder / "blocks", number, series, gaps=GAPS) for number in range(1, REPLICAS + 1)]
    sources = [put_block(store, block) for block in blocks]
    times = {"range_start_ms": START_MS, "range_end_ms": START_MS + 2 * INTERVAL_MS}
    spec = merge_spec("group", store, sources, partitions=PARTITIONS, **times)
    return [replace(spec, job=f"part-{number}", partition=number) for number in range(PARTITIONS)]


def _measure(folder: Path, slots: int, rounds: int) -> dict[str, float]:
    program = [sys.executable, "-m", "tests.bench.tsdb_scaling", str(folder), str(slots), str(rounds)]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return measured


def _measure_here(folder: Path, slots: int, rounds: int) -> dict[str, object]:
    from spark.lanes.tsdb import merge as tsdb_merge
    from spark.probe import probe
    from spark.session import make_session
    from spark.settings import SparkSettings

    specs = [TsdbMergeSpec.from_json(told) for told in json.loads((folder / "specs.json").read_text())]
    store = open_store(specs[0].bucket_url)
    spark = make_session(SparkSettings(master=f"local[{slots}]", scratch=folder / f"spark-{slots}"))
    probe(spark)
    seconds, checksums = [], []
    for number in range(rounds + 1):
        started = time.perf_counter()
        outcomes = tsdb_merge.run(spark, specs, tag=f"round-{number}")
        seconds.append(time.perf_counter() - started)
        checksums = []
        for _, outcome in sorted(outcomes.items()):
            assert isinstance(outcome, TsdbMergeResult), outcome
            assert outcome.block is not None
            for file in outcome.block.files:
                checksums.append([outcome.block.id, file.name, file.size, file.crc32c])
                store.delete(f"{specs[0].folder}{outcome.block.id}/{file.name}")
    spark.stop()
    return {"seconds": statistics.median(seconds[1:]), "checksums": checksums}


if __name__ == "__main__":
    print(json.dumps(_measure_here(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
