"""A node's use of Spark in a process of its own: ``standalone_driver.py STORE_URL``, settings in the environment.

Reads job specifications as JSON from standard input and prints one JSON object: the probe's answers, where the
executors found our code, and the results.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from engine.protocol.profile_jobs import ProfileMergeResult, ProfileMergeSpec
from spark.frames import run_orders
from spark.jobs import profile_merge
from spark.probe import probe
from spark.session import SparkSettings, make_session


def tell_where(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Say, on an executor, from where the engine is imported."""
    # As a function of the main module it travels by value: executors elsewhere have no tests.
    import pyarrow

    import engine

    for batch in batches:
        yield pyarrow.record_batch({"file": [engine.__file__] * batch.num_rows})


def main(store_url: str) -> dict[str, Any]:
    """Start the session, prove it, find out where the code is, merge."""
    specs = [ProfileMergeSpec.from_json(spec) for spec in json.load(sys.stdin)]
    session = make_session(SparkSettings.from_environment(store_url))
    try:
        answers = probe(session)
        where = run_orders(session, pa.table({"task": [0, 1]}), tell_where, "file string")
        outcomes = profile_merge.run(session, specs, store_url, tag="standalone")
        results = {
            job: outcome.to_json() if isinstance(outcome, ProfileMergeResult) else repr(outcome)
            for job, outcome in outcomes.items()
        }
        return {"probe": answers, "engine": sorted(set(where["file"].to_pylist())), "results": results}
    finally:
        session.stop()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
