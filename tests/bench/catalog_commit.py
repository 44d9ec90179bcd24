"""A commit of 100,000 staged entries to a million, on PostgreSQL and a folder: seal, build, publish.

``s`` is wall time for uniformly chosen entries, ``s_clustered`` for adjacent ones. The ratios are bytes written to the
store per byte of the staged keys, identities and payloads.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

from tests.bench.catalog_world import bench_context, measured, new_repository, row, set_up, stage
from tests.bench.figures import Figures

NAME = "catalog_commit"
ENTRIES, ENTRIES_FULL = 1_000_000, 10_000_000


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess."""
    entries = ENTRIES_FULL if full else ENTRIES
    figures = measured("tests.bench.catalog_commit", entries)
    return Figures(parameters={"entries": entries, "staged": entries // 10}, figures=figures)


def measure(entries: int) -> dict[str, float]:
    """Return the figures."""
    set_up()
    repository = new_repository(row(number) for number in range(entries))
    staged = entries // 10
    uniform = sorted(random.Random(8).sample(range(entries), staged))
    figures: dict[str, float] = {}
    figures["s"], figures["bytes_uniform_ratio"] = _commit(repository, uniform, "w")
    begin = entries // 2
    figures["s_clustered"], figures["bytes_clustered_ratio"] = _commit(repository, range(begin, begin + staged), "x")
    return figures


def _commit(repository: Any, numbers: Any, value: str) -> tuple[float, float]:
    """Return the seconds of a commit of these entries, and the ratio of bytes written to bytes changed."""
    from webadmin.lanes.catalog.places import catalog_store
    from webadmin.lanes.catalog.services.commit_branch import commit_branch
    from webadmin.lanes.catalog.services.commits import NewCommit

    stage(repository, "main", (row(number, value) for number in numbers))
    changed = sum(len(part) for number in numbers for part in row(number, value))
    usage = catalog_store().usage
    before = usage.bytes()["put"]
    begun = time.perf_counter()
    commit_branch(repository, "main", NewCommit(committer="bench"), context=bench_context())
    return time.perf_counter() - begun, (usage.bytes()["put"] - before) / changed


if __name__ == "__main__":
    import sys

    print(json.dumps(measure(int(sys.argv[1]))))
