"""Query stored profiles: the index gives the blocks, the engine reads them.

One index snapshot contains either the sources of a job or its results. While a query reads sources, a merge may replace
them and delete their objects after the deletion delay; then the query is retried with a new snapshot. An object that is
in the index but not in the store is damaged: the result is partial, and its report says so.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from django.conf import settings

from engine.formats.profile_block.model import Labels
from engine.query.admission import Caller
from engine.query.dataset_reader import TableOf
from engine.query.execution import QueryEngine, QueryRun
from engine.query.flame.stack_table import stack_table
from engine.query.memory import datasets_max, expected_bytes
from engine.query.model import (
    INDEX_LABELS,
    TIME_MAX_MS,
    QueryBlock,
    QueryDataset,
    QueryLimits,
    QueryReport,
    Question,
    profile_types_of,
)
from engine.query.select_labels import label_names, label_values, profile_types, select_series
from engine.query.select_points import Grid, PointSeries, select_points
from engine.query.select_stacks import StackTarget, select_stacks
from engine.storage import open_store
from webadmin.lanes.profiles.queries import BlockFound, DatasetFound, IndexQuery, find_blocks

SNAPSHOTS_MAX = 4
QUESTIONS_AT_LEAST = 2
"""Number of queries that run at once whatever their size; each gets at most its share of the memory."""

Result = TypeVar("Result")
Target = TypeVar("Target", bound=StackTarget)
Work = Callable[[QueryRun, Sequence[QueryBlock]], Result]


@dataclass(frozen=True, slots=True)
class Answer(Generic[Result]):
    """Result of a query, its cost and its gaps."""

    result: Result
    report: QueryReport


def query_stacks(
    tenants: Iterable[str],
    question: Question,
    new_target: Callable[[], Target],
    *,
    table_of: TableOf = stack_table,
    limits: QueryLimits | None = None,
    caller: Caller | None = None,
) -> Answer[Target]:
    """Merge the stacks of all matching rows into a new target, such as a ``FlameTree``. Raises the errors of
    ``run_query``.

    ``table_of`` defines a frame: a function, or with ``location_table`` a whole location.
    """

    def work(run: QueryRun, blocks: Sequence[QueryBlock]) -> Target:
        target = new_target()
        select_stacks(run, blocks, question, target, table_of=table_of)
        return target

    return run_query(tenants, question, work, limits=limits, caller=caller)


def query_points(
    tenants: Iterable[str],
    question: Question,
    grid: Grid,
    *,
    limits: QueryLimits | None = None,
    caller: Caller | None = None,
) -> Answer[list[PointSeries]]:
    """Return the points of the matching rows; the grid gives the range. Raises the errors of ``run_query``."""
    grid.check((limits or query_limits()).points)
    narrowed = replace(question, start_ms=grid.first_ms, end_ms=grid.last_ms)
    return run_query(
        tenants, narrowed, lambda run, blocks: select_points(run, blocks, narrowed, grid), limits=limits, caller=caller
    )


def query_series(
    tenants: Iterable[str],
    question: Question,
    names: Sequence[str] = (),
    *,
    limits: QueryLimits | None = None,
    caller: Caller | None = None,
) -> Answer[list[Labels]]:
    """Return the label sets of series with matching rows, only ``names``. Raises the errors of ``run_query``."""
    return run_query(
        tenants, question, lambda run, blocks: select_series(run, blocks, question, names), limits=limits, caller=caller
    )


def query_label_names(
    tenants: Iterable[str], question: Question, *, limits: QueryLimits | None = None, caller: Caller | None = None
) -> Answer[list[str]]:
    """Return the label names. Raises the errors of ``run_query``."""
    return run_query(
        tenants, question, lambda run, blocks: label_names(run, blocks, question), limits=limits, caller=caller
    )


def query_label_values(
    tenants: Iterable[str],
    question: Question,
    name: str,
    *,
    limits: QueryLimits | None = None,
    caller: Caller | None = None,
) -> Answer[list[str]]:
    """Return the values of a label. Raises the errors of ``run_query``."""
    return run_query(
        tenants, question, lambda run, blocks: label_values(run, blocks, question, name), limits=limits, caller=caller
    )


def query_profile_types(
    tenants: Iterable[str], question: Question, *, limits: QueryLimits | None = None, caller: Caller | None = None
) -> Answer[list[str]]:
    """Return the ids of profile types. Raises the errors of ``run_query``."""
    return run_query(
        tenants, question, lambda run, blocks: profile_types(run, blocks, question), limits=limits, caller=caller
    )


def run_query(
    tenants: Iterable[str],
    question: Question,
    work: Work[Result],
    *,
    limits: QueryLimits | None = None,
    caller: Caller | None = None,
) -> Answer[Result]:
    """Run ``work`` on the blocks of an index snapshot; retry it with other blocks after a concurrent merge.

    With ``caller`` the memory of the result stays reserved until the caller releases it; otherwise until this returns.
    Raises InvalidQuestion, QueryTooLarge, QueryTimedOut, QueryBusy, QueryAbandoned, InvalidIndexQuery or IndexMoved.
    """
    question.check()
    limits = limits or query_limits()
    if caller is None:
        with Caller(query_engine().memory, limits.seconds) as own:
            return run_query(tenants, question, work, limits=limits, caller=own)
    run = query_engine().run(limits, caller)
    owners = tuple(dict.fromkeys(tenants))
    before = caller.bytes_held
    with run.phase("index"), caller.turn():
        blocks = find_query_blocks(owners, question, datasets_max(limits))
        caller.hold(before + expected_bytes(blocks, limits))
    for _ in range(SNAPSHOTS_MAX):
        result = work(run, blocks)
        missing = {damage.key for damage in run.report().damage if damage.is_missing}
        if not missing:
            break
        with run.phase("index"):
            blocks = find_query_blocks(owners, question, datasets_max(limits))
        if missing <= {block.key for block in blocks}:
            break  # The blocks were not replaced, so their objects are lost.
        run.forget()
    return Answer(result, run.report())


def find_query_blocks(tenants: Sequence[str], question: Question, datasets_most: int = 0) -> list[QueryBlock]:
    """Return the live blocks that may have matching rows, from one index snapshot.

    Raises QueryTooLarge if there are more than ``datasets_most`` datasets (0: no limit).

    The index filters by service, time and delete requests; profile types are filtered here, other labels once the
    series are read.
    """
    if question.end_ms < 0:
        return []
    query = IndexQuery(
        tenants=tuple(tenants),
        start_ms=max(question.start_ms, 0),
        end_ms=min(question.end_ms, TIME_MAX_MS),
        matchers=question.index_matchers,
        labels=INDEX_LABELS,
        by_name=True,
        datasets_max=datasets_most,
    )
    found = (_query_block(block, question) for block in find_blocks(query))
    return [block for block in found if block.datasets]


def _query_block(block: BlockFound, question: Question) -> QueryBlock:
    datasets = [_query_dataset(dataset) for dataset in block.datasets]
    wanted = tuple(dataset for dataset in datasets if question.may_be_in(dataset))
    return QueryBlock(key=block.object_key, size=block.size, datasets=wanted)


def _query_dataset(dataset: DatasetFound) -> QueryDataset:
    return QueryDataset(
        position=dataset.position,
        tenant=dataset.tenant,
        name=dataset.name,
        format=dataset.format,
        min_time_ms=dataset.min_time_ms,
        max_time_ms=dataset.max_time_ms,
        table_of_contents=dataset.table_of_contents,
        size=dataset.size,
        profile_types=profile_types_of(dataset.labels),
        masks=dataset.masks,
    )


def query_limits() -> QueryLimits:
    """Return the configured limits of one query."""
    return QueryLimits(
        seconds=settings.QUERY_SECONDS,
        bytes=settings.QUERY_BYTES,
        memory=settings.QUERY_MEMORY_BYTES // QUESTIONS_AT_LEAST,
    )


_current: tuple[str, QueryEngine] | None = None
_starting = threading.Lock()


def query_engine() -> QueryEngine:
    """Return the query engine of this process. The first query creates it, so that its threads start after any fork."""
    global _current
    with _starting:
        if _current is None or _current[0] != settings.OBJECT_STORE_URL:
            if _current is not None:
                _current[1].close()
            made = QueryEngine(
                open_store(settings.OBJECT_STORE_URL),
                threads=settings.QUERY_THREADS,
                cache_bytes=settings.QUERY_CACHE_BYTES,
                memory_bytes=settings.QUERY_MEMORY_BYTES,
                waiting_max=settings.QUERY_WAITING,
                wait_seconds=settings.QUERY_WAIT_SECONDS,
            )
            atexit.register(made.close)
            _current = (settings.OBJECT_STORE_URL, made)
        return _current[1]
