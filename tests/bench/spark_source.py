"""Speed of reading stored profiles as Spark rows: samples per second of one core, without and with their stacks.

Estimate: the data is some hours of eight services after compaction: blocks of many profiles of 60 samples, stacks 16
deep, four public labels per series. Without stacks a row takes 0.3 µs to build in the executor's Python and 1 to 2 µs
in the JVM, which copies each map of labels: 500,000 to 700,000 per second. Sixteen names of 60 bytes are a kilobyte
that is copied three times: 4 µs, 250,000 per second.

The time is all CPU time of Spark during a query: the JVM with its compiler and garbage collector, the executors' Python
processes and the one that plans. The session is warm: each query ran before. Rates depend on the query, so the queries
are below. Block locations come from memory, so that no database is measured; ``made_…`` are the batches alone, in one
Python process without Spark.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.bench.figures import Figures, process_seconds

NAME = "spark_source"
SEED = 20261121
BLOCKS = 2
SERVICES, SERVICES_FULL = 8, 32
PROFILES = 1_500
SAMPLES = 60
REPEATS = 2
REPEATS_FULL = 7
SHUFFLE_PARTITIONS = 4
"""Results are small; with Spark's default of 200 the figures would measure shuffle partitions."""
TENANT = "tenant"
QUESTIONS = {
    "rows_per_s_core": (
        1,
        "time,service,labels,type,value",
        "SELECT date_trunc('week', time), labels['region'], type, sum(value), count(*) FROM profiles "
        "WHERE {services} GROUP BY ALL",
    ),
    "rows_per_s_core_stacks": (
        1 / 2,
        "time,service,labels,type,stack,value",
        "SELECT date_trunc('week', time), labels['region'], stack[0], sum(value), count(*) FROM profiles "
        "WHERE {services} GROUP BY ALL",
    ),
    "rows_per_s_core_top_functions": (
        1 / 8,
        "time,service,labels,type,stack,value",
        "SELECT date_trunc('week', time), labels['region'], function, sum(value), count(*) FROM (SELECT *, "
        "explode(array_distinct(stack)) AS function FROM profiles WHERE {services}) GROUP BY ALL",
    ),
}
"""By figure: share of the services, columns, and query."""


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess, whose children are Spark's processes."""
    program = [sys.executable, "-m", "tests.bench.spark_source", "full" if full else "default"]
    answer = subprocess.run(program, stdout=subprocess.PIPE, check=True, text=True)
    told = json.loads(answer.stdout.splitlines()[-1])
    return Figures(told["parameters"], told["figures"])


def measure(full: bool) -> dict[str, Any]:
    """Return parameters and figures; rates are medians over repeats."""
    from spark.session import make_session
    from spark.settings import SparkSettings

    services = SERVICES_FULL if full else SERVICES
    with tempfile.TemporaryDirectory(prefix="lithify-bench-") as folder:
        store_url, look, rows = _write(Path(folder), services)
        spark = make_session(SparkSettings(master="local[2]", scratch=Path(folder) / "spark"))
        figures = _asked(spark, store_url, look, rows, REPEATS_FULL if full else REPEATS)
        figures |= _made(store_url, look)
        spark.stop()
    parameters = {
        "rows_per_service": rows,
        "services": services,
        "blocks": len(look["blocks"]),
        "samples_per_profile": SAMPLES,
        "master": "local[2]",
        "shuffle_partitions": SHUFFLE_PARTITIONS,
    }
    return {"parameters": parameters, "figures": figures}


def _asked(spark: Any, store_url: str, look: dict[str, Any], rows: int, repeats: int) -> dict[str, float]:
    """Return the rates of the queries; every service has ``rows`` rows."""
    from spark.profiles_source import register
    from tests.spark.service_double import service_double

    register(spark)
    spark.conf.set("spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    figures: dict[str, float] = {}
    with service_double(look) as url:
        options = {"tenant": TENANT, "start": "0001-01-01", "end": "9999-01-01", "url": url, "store": store_url}
        for name, (part, columns, question) in QUESTIONS.items():
            given = options | {"credential": "lw_bench", "columns": columns}
            spark.read.format("lithify.profiles").options(**given).load().createOrReplaceTempView("profiles")
            services = round(part * len(look["blocks"]) / BLOCKS)
            asked = rows * services
            names = ", ".join(f"'checkout-{number}'" for number in range(services))

            def ask(text: str = question.format(services=f"service IN ({names})"), asked: int = asked) -> None:
                assert sum(row[-1] for row in spark.sql(text).collect()) >= asked

            ask()
            figures[name] = statistics.median(asked / _core_seconds(ask) for _ in range(repeats))
    return figures


def _core_seconds(work: Callable[[], None]) -> float:
    """Return the CPU time of all Spark processes during ``work``, including those that exit meanwhile."""
    before = _spark_seconds()
    work()
    return _spark_seconds() - before


def _spark_seconds() -> float:
    import psutil

    (jvm,) = [child for child in psutil.Process().children() if "java" in child.name()]
    return process_seconds(jvm.pid)


def _made(store_url: str, look: dict[str, Any]) -> dict[str, float]:
    """Return the rates of building the batches, without Spark."""
    from engine.query.block_query import index_snapshot_from_json
    from engine.query.execution import QueryEngine
    from engine.query.model import Damage, Question
    from engine.query.sample_batches import SampleColumns, ShareReader
    from engine.query.shares import cut_shares
    from engine.storage import open_store

    def refuse(damage: Damage) -> None:
        raise damage.error

    question = Question(start_ms=0, end_ms=1 << 42)
    shares = cut_shares(index_snapshot_from_json(look, question).blocks, question)
    figures = {}
    for name in ("rows_per_s_core", "rows_per_s_core_stacks"):
        wish = SampleColumns(columns=tuple(QUESTIONS[name][1].split(",")))
        rates = []
        for _ in range(REPEATS):
            engine = QueryEngine(open_store(store_url), threads=2)
            reader = ShareReader(engine, question, wish, refuse)
            started = time.process_time()
            rows = sum(batch.num_rows for share in shares for batch in reader.batches(share))
            rates.append(rows / (time.process_time() - started))
            engine.close()
        figures[name.replace("rows", "made")] = statistics.median(rates)
    return figures


def _write(folder: Path, services: int) -> tuple[str, dict[str, Any], int]:
    """Write blocks of each service; return the store URL, the block metadata, and the samples of one service.

    The objects of all services have equal bytes under distinct keys, which readers treat as distinct.
    """
    from engine.core import ulids
    from engine.formats.profile_block.container.metadata import decode_metadata
    from engine.formats.profile_block.merge_model import Scratch
    from engine.ingest.segments.segment import SegmentBuilder
    from engine.lanes.profiles.merge.merge import run as run_merge
    from engine.storage import open_store
    from tests.bench.profile_segments import program
    from tests.bench.query import _profiles, _put
    from tests.engine.formats.profile_block.factories import TIME_MS, merge_spec
    from tests.spark.service_double import block_to_json

    draw = random.Random(SEED)
    store = open_store(str(folder / "store"))
    pool = _profiles(draw, program(draw, 1))
    blocks = []
    for number in range(BLOCKS):
        builder = SegmentBuilder(1, created_by="bench")
        for profile in range(PROFILES):
            time_ms = TIME_MS + number * 3_600_000 + profile * 2_000
            pod = f"pod-{profile % 7}"
            labels = {"__name__": "process_cpu", "service_name": "checkout", "pod": pod, "namespace": "production"}
            labels["region"] = "eu" if profile % 7 < 4 else "us"
            builder.add(TENANT, labels, replace(draw.choice(pool), time_ns=time_ms * 1_000_000))
        data, meta = builder.build(ulids.make(TIME_MS + number, draw.randbytes(ulids.ENTROPY_BYTES)))
        spec = merge_spec([_put(store, data, meta)], shard=1)
        (block,) = run_merge(spec, store, scratch=Scratch(folder / "scratch")).blocks
        told = block_to_json(block.key, replace(decode_metadata(block.metadata), size=block.size))
        for service in range(services):
            key = f"copies/{service}/{block.key}"
            store.put(key, store.get(block.key))
            named = [dataset | {"name": dataset["name"] and f"checkout-{service}"} for dataset in told["datasets"]]
            blocks.append(told | {"object_key": key, "datasets": named})
    return store.url, {"blocks": blocks}, BLOCKS * PROFILES * SAMPLES * 2


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] == "full")))
