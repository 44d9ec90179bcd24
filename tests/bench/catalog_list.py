"""The first page of a prefix whose first million entries are deleted, on PostgreSQL.

``ms_before``: a tombstone for each is staged on the commit. ``ms_after``: the same branch after its compaction and the
next round of control tasks, which deletes the compacted rows. ``ms_interval``: they were deleted by one interval
tombstone instead. ``ms_clean``: a branch that never had them. A page has 1,000 entries; times are medians with warm
caches, measured alternately; the first is of a single listing.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from tests.bench.catalog_world import bench_context, compact, measured, new_repository, row, set_up, stage
from tests.bench.figures import Figures

NAME = "catalog_list"
DELETED, DELETED_FULL = 1_000_000, 5_000_000
KEPT = 5_000
REPEATS = 21


def run(full: bool) -> Figures:
    """Run the benchmark in a subprocess."""
    deleted = DELETED_FULL if full else DELETED
    figures = measured("tests.bench.catalog_list", deleted)
    return Figures(parameters={"deleted": deleted, "kept": KEPT, "page": 1000}, figures=figures)


def measure(deleted: int) -> dict[str, float]:
    """Return the figures."""
    set_up()
    from webadmin.lanes.catalog.services.branches import create_branch
    from webadmin.lanes.catalog.services.garbage.sweep_rows import sweep_retired_rows
    from webadmin.lanes.catalog.services.write_objects import delete_prefix

    repository = new_repository(_rows(deleted))
    for name in ("interval", "clean"):
        create_branch(repository, name, "main", context=bench_context())
    delete_prefix(repository, "interval", b"data/a", context=bench_context())
    delete_prefix(repository, "clean", b"data/a", context=bench_context())
    compact(repository, "clean")
    _commit(repository, "clean")
    stage(repository, "main", ((key, b"", b"") for key, _, _ in _rows(deleted) if key.startswith(b"data/a")))
    before = _page(repository, "main")
    compact(repository, "main")
    sweep_retired_rows()
    figures = {"ms_before": before * 1000}
    branches = {"after": "main", "interval": "interval", "clean": "clean"}
    rounds = [{name: _page(repository, branch) for name, branch in branches.items()} for _ in range(1 + REPEATS)]
    figures |= {f"ms_{name}": statistics.median(each[name] for each in rounds[1:]) * 1000 for name in branches}
    return figures | {"ratio_after": figures["ms_after"] / figures["ms_clean"]}


def _rows(deleted: int) -> Any:
    for number in range(deleted):
        yield b"data/a%s" % row(number)[0], *row(number)[1:]
    for number in range(KEPT):
        yield b"data/b%s" % row(number)[0], *row(number)[1:]


def _commit(repository: Any, branch: str) -> None:
    from webadmin.lanes.catalog.services.commit_branch import commit_branch
    from webadmin.lanes.catalog.services.commits import NewCommit

    commit_branch(repository, branch, NewCommit(committer="bench"), context=bench_context())


def _page(repository: Any, branch: str) -> float:
    from webadmin.lanes.catalog.services.read_objects import list_entries

    begun = time.perf_counter()
    page = list_entries(repository, branch, prefix=b"data/")
    seconds = time.perf_counter() - begun
    assert len(page.items) == 1000
    assert page.items[0].key.startswith(b"data/b")
    return seconds


if __name__ == "__main__":
    import sys

    print(json.dumps(measure(int(sys.argv[1]))))
