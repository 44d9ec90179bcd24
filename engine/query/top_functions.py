"""Return the functions of one service with the largest own values, over any set of blocks.

For callers that have a list of blocks and no index: the demo and tests. Rows are deduplicated, so the answer is equal
before and after a merge. Damaged data is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.formats.profile_block.model import BlockMeta
from engine.formats.profile_block.selectors import Matcher, MatchOperator
from engine.query.execution import QueryEngine
from engine.query.flame.top_table import top_table
from engine.query.flame.tree import FlameTree
from engine.query.model import (
    PROFILE_TYPE,
    TIME_MAX_MS,
    QueryLimits,
    QueryReport,
    Question,
    Visible,
    blocks_of,
)
from engine.query.select_stacks import select_stacks
from engine.storage.model import ObjectStore

LIMITS = QueryLimits(seconds=24 * 3600.0, objects=10_000_000, bytes=1 << 50)
THREADS = 1
"""One thread: of rows with one ID and different content, the first one counts, as in a merge."""


class FunctionValue(NamedTuple):
    """Own and total value of a function; recursion counts once per stack."""

    function: str
    self_value: int
    total_value: int


class QueryStatistics(NamedTuple):
    """The cost of the answer."""

    objects_opened: int
    requests: int
    bytes_read: int
    rows_read: int


class TopFunctions(NamedTuple):
    """The largest functions, by own value then name; ``total_value`` is the sum of all samples."""

    functions: tuple[FunctionValue, ...]
    total_value: int
    statistics: QueryStatistics


def top_functions(
    store: ObjectStore,
    blocks: Sequence[tuple[str, BlockMeta]],
    tenant: str,
    service: str,
    profile_type: str,
    limit: int,
    *,
    visible: Visible | None = None,
) -> TopFunctions:
    """Return the ``limit`` functions of a service with the largest own values of a profile type.

    ``blocks`` are (object key, metadata with ``size``). ``visible`` restricts their datasets; None: all are visible.
    Raises BadObject or StorageError with the object that cannot be read.
    """
    tree = FlameTree()
    report = _read(store, blocks, (tenant, service), profile_type, visible, tree)
    rows = sorted(top_table(tree), key=lambda row: (-row.own, row.name))[:limit]
    return TopFunctions(
        functions=tuple(FunctionValue(*row) for row in rows),
        total_value=tree.total,
        statistics=QueryStatistics(
            objects_opened=report.cost.objects_opened,
            requests=report.cost.requests,
            bytes_read=report.cost.bytes_read,
            rows_read=report.cost.rows_read,
        ),
    )


def _read(
    store: ObjectStore,
    blocks: Sequence[tuple[str, BlockMeta]],
    owner: tuple[str, str],
    profile_type: str,
    visible: Visible | None,
    tree: FlameTree,
) -> QueryReport:
    """Add the stacks of a (tenant, service) to the tree."""
    wanted = [
        replace(block, datasets=tuple(each for each in block.datasets if (each.tenant, each.name) == owner))
        for block in blocks_of(blocks, visible)
    ]
    condition = Matcher(PROFILE_TYPE, MatchOperator.EQUAL, profile_type)
    question = Question(start_ms=-TIME_MAX_MS, end_ms=TIME_MAX_MS, matchers=(condition,))
    engine = QueryEngine(store, threads=THREADS, cache_bytes=0)
    try:
        run = engine.run(LIMITS)
        select_stacks(run, wanted, question, tree)
    finally:
        engine.close()
    for damage in run.report().damage:
        raise damage.error
    return run.report()
