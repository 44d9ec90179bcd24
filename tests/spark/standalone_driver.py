"""A node's use of Spark in a process of its own: ``standalone_driver.py STORE_URL``, settings in the environment.

Reads job specifications and the options of a question as JSON from standard input and prints one JSON object: the
probe's answers, where the executors found our code, the results, the question's answer, and how many processes of the
machine show the cluster's secret in their command line.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from spark.frames import run_work_items
from spark.lanes.profiles import merge as profile_merge
from spark.lanes.tsdb import merge as tsdb_merge
from spark.probe import probe
from spark.profiles_source import register
from spark.session import make_session
from spark.settings import SparkSettings


def tell_where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say, on an executor, from where the engine is imported."""
    # As a function of the main module it travels by value: executors elsewhere have no tests.
    import pyarrow

    import engine

    for batch in batches:
        yield pyarrow.record_batch({"file": [engine.__file__] * batch.num_rows})


def count_command_lines_with(secret: str) -> int:
    """Return how many processes of this machine have the secret in their command line."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return sum(secret in "\0".join(line) for line in lines)


def main(store_url: str) -> dict[str, Any]:
    """Start the session, prove it, find out where the code is, merge, ask."""
    told = json.load(sys.stdin)
    specs = [ProfileMergeSpec.from_json(spec) for spec in told["specs"]]
    session = make_session(SparkSettings.from_environment(store_url))
    try:
        answers = probe(session)
        where = run_work_items(session, pa.table({"task": [0, 1]}), tell_where, "file string")
        outcomes = profile_merge.run(session, specs, store_url, tag="standalone")
        results = {
            job: outcome.to_json() if isinstance(outcome, ProfileMergeResult) else repr(outcome)
            for job, outcome in outcomes.items()
        }
        blocks = [TsdbMergeSpec.from_json(spec) for spec in told["blocks"]]
        of_blocks = {
            job: outcome.to_json() if isinstance(outcome, TsdbMergeResult) else repr(outcome)
            for job, outcome in tsdb_merge.run(session, blocks, tag="standalone-blocks").items()
        }
        register(session)
        profiles = session.read.format("lithify.profiles").options(**told["options"]).load()
        (answer,) = profiles.selectExpr("count(*)", "sum(value)", "sum(size(stack))").collect()
        found = sorted(set(where["file"].to_pylist()))
        shown = count_command_lines_with(Path(os.environ["SPARK_SECRET_FILE"]).read_text())
        return {
            "probe": answers,
            "engine": found,
            "results": results,
            "blocks": of_blocks,
            "answer": list(answer),
            "secret_shown": shown,
        }
    finally:
        session.stop()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
