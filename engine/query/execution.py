"""Run a query over its blocks: in parallel, within limits, and tolerant of damaged data.

A ``QueryEngine`` belongs to a process: all queries share its threads, cache and memory budget. A ``QueryRun`` is one
running query. A dataset or object that cannot be read is omitted from the answer and named in the report. A query ends
without an answer only by a limit, its deadline or the disconnect of its caller.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from engine.core.errors import BadObject, LithifyError
from engine.formats.profile_block.container.container import ObjectReader
from engine.formats.profile_block.model import DATASET_INDEX, IndexedSeries
from engine.formats.profile_block.selectors import SeriesFilter
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.query.admission import CHECK_SECONDS, Caller, MemoryBudget
from engine.query.dataset_index import visible_series
from engine.query.dataset_reader import SERIES_BYTES, OpenDataset, OpenObjects
from engine.query.errors import QueryTimedOut, QueryTooLarge
from engine.query.memory import under_way_bytes, under_way_max
from engine.query.model import (
    PHASES,
    Damage,
    QueryBlock,
    QueryCost,
    QueryDataset,
    QueryLimits,
    QueryReport,
    Question,
    profile_datasets,
)
from engine.storage.model import ObjectStore, StorageError
from engine.storage.section_cache import SectionCache

THREADS = 8
CACHE_BYTES = 128 << 20
MEMORY_BYTES = 1 << 30
WAITING_MAX = 32
WAIT_SECONDS = 10.0
AHEAD_PER_THREAD = 2
"""Queued datasets per thread; a longer queue would let one query delay all others."""
INDEX_PAYS_FROM = 4
"""Minimum number of candidate datasets of a block at which its dataset index is read first."""

Result = TypeVar("Result")
Item = TypeVar("Item")


class QueryEngine:
    """Resources shared by the queries of a process: store, threads, memory budget, and cache of decoded sections."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        threads: int = THREADS,
        cache_bytes: int = CACHE_BYTES,
        memory_bytes: int = MEMORY_BYTES,
        waiting_max: int = WAITING_MAX,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.store = store
        self.cache = SectionCache(cache_bytes)
        self.memory = MemoryBudget(memory_bytes, waiting_max=waiting_max, wait_seconds=wait_seconds)
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="query")

    def run(self, limits: QueryLimits | None = None, caller: Caller | None = None) -> QueryRun:
        """Start a query; its deadline counts from now, or from the start of ``caller``."""
        limits = limits or QueryLimits()
        return QueryRun(self, limits, caller or Caller(self.memory, limits.seconds))

    def submit(self, work: Callable[[Item], Result], item: Item) -> Future[Result]:
        """Run ``work`` in a thread."""
        return self._pool.submit(work, item)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(cancel_futures=True)


class QueryRun:
    """A running query. Reads run in the engine's threads; results are returned in the caller's thread."""

    def __init__(self, engine: QueryEngine, limits: QueryLimits, caller: Caller) -> None:
        self.limits = limits
        self.caller = caller
        self._engine = engine
        self._started = time.monotonic()
        self._objects = OpenObjects()
        self._lock = threading.Lock()
        self._phases = dict.fromkeys(PHASES, 0.0)
        self._rows_read = 0
        self._damage: list[Damage] = []
        self._is_over = False

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time inside the context to one of PHASES."""
        started = time.perf_counter()
        try:
            yield
        finally:
            seconds = time.perf_counter() - started
            with self._lock:
                self._phases[name] += seconds

    def check(self) -> None:
        """Raise QueryTimedOut, QueryAbandoned or QueryTooLarge if the query must end; called before larger steps."""
        if self._is_over:
            raise QueryTimedOut(self.limits.seconds)
        self.caller.check()
        if self._objects.bytes_read > self.limits.bytes:
            raise QueryTooLarge("bytes", self.limits.bytes)

    def count_rows(self, count: int) -> None:
        """Add to the number of matching rows. Raises QueryTooLarge."""
        with self._lock:
            self._rows_read += count
        if self._rows_read > self.limits.rows:
            raise QueryTooLarge("rows", self.limits.rows)

    def over(
        self,
        blocks: Sequence[QueryBlock],
        question: Question,
        work: Callable[[OpenDataset, list[IndexedSeries]], Result],
    ) -> Iterator[Result]:
        """Yield, unordered, the results of ``work`` for every dataset with selected series.

        ``work`` receives those series and runs in another thread. Raises QueryTooLarge, QueryTimedOut, InvalidQuestion.
        """
        question.check()
        if len(blocks) > self.limits.objects:
            raise QueryTooLarge("objects", self.limits.objects)
        selected = SeriesFilter(question.matchers, self.check)

        def read(target: tuple[QueryBlock, QueryDataset]) -> list[Result]:
            return self._read_dataset(*target, question, selected, work)

        def weight(target: tuple[QueryBlock, QueryDataset]) -> int:
            return under_way_bytes(target[1].size)

        for results in self._each(read, self._targets(blocks, question, selected), weight):
            yield from results

    def in_order(
        self, blocks: Sequence[QueryBlock], question: Question
    ) -> Iterator[tuple[OpenDataset, list[IndexedSeries]]]:
        """Yield every dataset with selected series, prefetched in other threads, and those series.

        The order is that of the blocks. Datasets that cannot be opened are recorded as damage and omitted.
        """
        question.check()
        selected = SeriesFilter(question.matchers)
        targets = ((block, dataset) for block in blocks for dataset in profile_datasets(block))
        wanted = ((block, dataset) for block, dataset in targets if question.may_be_in(dataset))
        ahead = self._engine.threads * (1 + AHEAD_PER_THREAD)
        waiting: deque[Future[list[tuple[OpenDataset, list[IndexedSeries]]]]] = deque()

        def open_one(target: tuple[QueryBlock, QueryDataset]) -> list[tuple[OpenDataset, list[IndexedSeries]]]:
            return self._read_dataset(*target, question, selected, lambda opened, inside: (opened, inside))

        try:
            for target in wanted:
                waiting.append(self._engine.submit(open_one, target))
                if len(waiting) == ahead:
                    yield from self._counted(waiting.popleft().result())
            while waiting:
                yield from self._counted(waiting.popleft().result())
        finally:
            self._is_over = bool(waiting)
            for future in waiting:
                future.cancel()

    def _counted(
        self, found: list[tuple[OpenDataset, list[IndexedSeries]]]
    ) -> Iterator[tuple[OpenDataset, list[IndexedSeries]]]:
        """Yield the opened datasets, and count the caller's reads."""
        for opened, inside in found:
            requests, bytes_read = opened.fetched
            try:
                yield opened, inside
            finally:
                now_requests, now_bytes = opened.fetched
                self._objects.add_more(opened.key, now_requests - requests, now_bytes - bytes_read)

    def damaged(self, opened: OpenDataset, error: LithifyError) -> None:
        """Record that the rest of a dataset cannot be read; rows read before count."""
        self._add_damage(opened.key, opened.dataset, error)

    @property
    def damage(self) -> list[Damage]:
        """Return the damage found so far, in order."""
        with self._lock:
            return list(self._damage)

    def report(self) -> QueryReport:
        """Return the cost so far and the damage."""
        with self._lock:
            cost = QueryCost(
                objects_opened=self._objects.count,
                datasets_read=self._objects.datasets,
                requests=self._objects.requests,
                bytes_read=self._objects.bytes_read,
                rows_read=self._rows_read,
                seconds=time.monotonic() - self._started,
                phases=dict(self._phases),
            )
            damage = sorted(self._damage, key=lambda each: (each.key, each.tenant, each.service))
        return QueryReport(cost=cost, damage=tuple(damage))

    def forget(self) -> None:
        """Reset the damage before a restart of the query with other blocks."""
        with self._lock:
            self._damage.clear()
            self._rows_read = 0

    def _targets(
        self, blocks: Sequence[QueryBlock], question: Question, selected: SeriesFilter
    ) -> Iterator[tuple[QueryBlock, QueryDataset]]:
        """Yield the datasets to open, first those of blocks whose dataset index is not needed."""
        targets: list[tuple[QueryBlock, list[QueryDataset], QueryDataset]] = []
        for block in blocks:
            wanted = [dataset for dataset in profile_datasets(block) if question.may_be_in(dataset)]
            indexes = [dataset for dataset in block.datasets if dataset.format == DATASET_INDEX]
            own = [index for index in indexes if all(index.tenant == dataset.tenant for dataset in wanted)]
            if own and len(wanted) >= INDEX_PAYS_FROM and question.matchers:
                targets.append((block, wanted, own[0]))
            else:
                yield from ((block, dataset) for dataset in wanted)

        def choose(item: tuple[QueryBlock, list[QueryDataset], QueryDataset]) -> list[tuple[QueryBlock, QueryDataset]]:
            block, wanted, index = item
            return [(block, dataset) for dataset in self._chosen(block, wanted, index, selected)]

        for chosen in self._each(choose, targets, lambda item: under_way_bytes(item[2].size)):
            yield from chosen

    def _chosen(
        self, block: QueryBlock, wanted: list[QueryDataset], index: QueryDataset, selected: SeriesFilter
    ) -> list[QueryDataset]:
        """Return the datasets that have selected series according to the block's dataset index."""
        reader = ObjectReader(self._engine.store, block.key, block.size)

        def read() -> tuple[list[IndexedSeries], int]:
            with self.phase("open"):
                (offset,) = index.table_of_contents
                section = reader.read(offset, index.size)
            with self.phase("series"):
                series = decode_series_index(section)
            return series, SERIES_BYTES * len(series)

        try:
            if len(index.table_of_contents) != 1:
                raise BadObject("container", -1, f"a dataset index of {len(index.table_of_contents)} sections")
            series = self._engine.cache.get((block.key, index.position, "series"), read)
        except (BadObject, StorageError) as error:
            self._add_damage(block.key, index, error)
            return wanted  # fall back to the datasets themselves
        finally:
            self._objects.add(reader)
        shown = visible_series(series, {dataset.position: dataset.masks for dataset in wanted})
        positions = {entry.position for entry in selected.matching(shown)}
        return [dataset for dataset in wanted if dataset.position in positions]

    def _read_dataset(
        self,
        block: QueryBlock,
        dataset: QueryDataset,
        question: Question,
        selected: SeriesFilter,
        work: Callable[[OpenDataset, list[IndexedSeries]], Result],
    ) -> list[Result]:
        self.check()
        reader = ObjectReader(self._engine.store, block.key, block.size)
        try:
            opened = OpenDataset(reader, dataset, self._engine.cache, self.phase)
            entries = opened.series()
            with self.phase("series"):
                inside = [
                    entry
                    for entry in selected.matching(entries)
                    if entry.max_time_ns >= question.start_ns and entry.min_time_ns <= question.end_ns
                ]
            return [work(opened, inside)] if inside else []
        except (BadObject, StorageError) as error:
            self._add_damage(block.key, dataset, error)
            return []
        finally:
            self._objects.add(reader)

    def _add_damage(self, key: str, dataset: QueryDataset, error: LithifyError) -> None:
        if isinstance(error, BadObject):
            error = error.in_object(key)
        with self._lock:
            self._damage.append(Damage(key=key, tenant=dataset.tenant, service=dataset.name, error=error))

    def _each(
        self, work: Callable[[Item], Result], items: Iterable[Item], weight: Callable[[Item], int]
    ) -> Iterator[Result]:
        """Yield results as they complete, with a bounded number and weight of items in progress."""
        waiting: dict[Future[Result], int] = {}
        left = iter(items)
        ahead = self._engine.threads * (1 + AHEAD_PER_THREAD)
        following = next(left, None)
        try:
            while following is not None or waiting:
                while following is not None and len(waiting) < ahead:
                    heavy = weight(following)
                    if waiting and sum(waiting.values()) + heavy > under_way_max(self.limits):
                        break
                    waiting[self._engine.submit(work, following)] = heavy
                    following = next(left, None)
                skips_max = min(self.caller.seconds_left, CHECK_SECONDS)
                done, _ = wait(waiting, timeout=skips_max, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                    del waiting[future]
                self.check()
        except BaseException:
            self._is_over = True  # work in progress stops at its next step
            for future in waiting:
                future.cancel()
            raise
