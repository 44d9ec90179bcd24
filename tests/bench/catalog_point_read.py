"""Point reads of a branch with 0, 10 and 100 sealed tokens, on PostgreSQL: time and statements of one read.

Half of the keys are in the commit only, half are staged in one of the tokens. 100,000 entries are committed, each token
has 200 rows. Times are medians of single reads with warm caches.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from typing import Any

from tests.bench.catalog_world import measured, new_repository, row, set_up, stage
from tests.bench.figures import Figures

NAME = "catalog_point_read"
ENTRIES, ROWS_PER_TOKEN = 100_000, 200
READS, READS_FULL = 1_000, 10_000
TOKENS = (0, 10, 100)


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess."""
    reads = READS_FULL if full else READS
    figures = measured("tests.bench.catalog_point_read", reads)
    parameters = {"entries": ENTRIES, "rows_per_token": ROWS_PER_TOKEN, "reads": reads}
    return Figures(parameters=parameters, figures=figures)


def measure(reads: int) -> dict[str, float]:
    """Return the figures."""
    set_up()
    from webadmin.lanes.catalog.services.records import record_named, seal_branch
    from webadmin.lanes.catalog.states import Why

    repository = new_repository(row(number) for number in range(ENTRIES))
    figures: dict[str, float] = {}
    draw = random.Random(8)
    staged: list[int] = []
    sealed = 0
    for tokens in TOKENS:
        while sealed < tokens:
            chosen = draw.sample(range(ENTRIES), ROWS_PER_TOKEN)
            staged += chosen
            stage(repository, "main", (row(number, "w") for number in sorted(chosen)))
            record = record_named(repository.pk, "main")
            assert record is not None
            seal_branch(int(record.uid), why=Why.COMMIT)
            sealed += 1
        numbers = [draw.choice(staged) if staged and each % 2 else draw.randrange(ENTRIES) for each in range(reads)]
        times, queries = _read(repository, [row(number)[0] for number in numbers])
        figures[f"ms_s{tokens}"] = statistics.median(times) * 1000
        figures[f"queries_s{tokens}"] = queries
    return figures


def _read(repository: Any, keys: list[bytes]) -> tuple[list[float], float]:
    """Return the seconds of each read, and the maximum number of statements of one."""
    from django.db import connection

    from webadmin.lanes.catalog.services.read_objects import get_entry

    count = 0

    def counted(execute: Any, *asked: Any) -> Any:
        nonlocal count
        count += 1
        return execute(*asked)

    times, most = [], 0
    for key in keys[:50]:
        with connection.execute_wrapper(counted):
            count = 0
            get_entry(repository, "main", key)
            most = max(most, count)
    for key in keys:
        begun = time.perf_counter()
        get_entry(repository, "main", key)
        times.append(time.perf_counter() - begun)
    return times, most


if __name__ == "__main__":
    import sys

    print(json.dumps(measure(int(sys.argv[1]))))
