"""Return the samples of a share as Arrow record batches, one row per sample, for readers such as Spark.

Values are built by column: values of a series once per series, a stack once per batch. Batches are bounded in bytes for
any input. If no stack column is requested, neither stacks nor symbols are read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import BadObject, BadReference
from engine.formats.profile_block.container.container import ObjectReader
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.selectors import SeriesFilter
from engine.query.dataset_reader import OpenDataset
from engine.query.duplicates import Duplicates
from engine.query.errors import InvalidQuestion
from engine.query.execution import QueryEngine, QueryRun
from engine.query.flame.stack_table import stack_table
from engine.query.model import (
    NANOS_PER_MS,
    PROFILE_TYPE,
    Damage,
    QueryDataset,
    QueryLimits,
    Question,
    profile_datasets,
)
from engine.query.rows import RowReader, Rows, SampleParts, Samples
from engine.query.shares import Share
from engine.query.unrolled_stacks import PLACE, UnrolledStacks, place_table
from engine.storage.model import StorageError

BATCH_ROWS = 16_384
BATCH_BYTES = 16 << 20
"""Maximum bytes of a batch with more than one row."""
PRIVATE = "__"
ROW_BYTES = 64
"""Bytes of a row without its labels and stack."""
REMEMBERED_ROWS_MAX = 5_000_000
"""Maximum rows of a share remembered for deduplication."""
UNLIMITED = QueryLimits(objects=1 << 62, bytes=1 << 62, series=1 << 62, rows=1 << 62, seconds=float("inf"))


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(_required("element", element))


FIELDS = {
    field.name: field
    for field in (
        _required("time", pa.timestamp("us", tz="UTC")),
        _required("service", pa.string()),
        _required("labels", pa.map_(pa.string(), _required("value", pa.string()))),
        _required("type", pa.string()),
        _required("stack", _list(pa.string())),
        _required("value", pa.int64()),
        _required("frames", _list(PLACE)),
    )
}
"""Column types by name. ``stack`` holds function names, ``frames`` also files and lines; both leaf first."""
DEFAULT_COLUMNS = ("time", "service", "labels", "type", "stack", "value")

Opened = tuple[OpenDataset, list[IndexedSeries]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleColumns:
    """The requested columns, in order. ``labels`` are the label names in that column.

    None: all except private ones (``__name__`` and others); the column ``type`` replaces these.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    labels: tuple[str, ...] | None = None

    def check(self) -> None:
        """Raise InvalidQuestion for an unknown or repeated column."""
        for name in self.columns:
            if name not in FIELDS:
                raise InvalidQuestion(f"there is no column {name!r}; there are {', '.join(FIELDS)}")
        if not self.columns or len(set(self.columns)) < len(self.columns):
            raise InvalidQuestion("name at least one column, and each once")

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([FIELDS[name] for name in self.columns])

    @property
    def has_stacks(self) -> bool:
        return not {"stack", "frames"}.isdisjoint(self.columns)


class ShareReader:
    """Reader of the shares of one query. Not thread-safe.

    ``on_damage`` receives the damage of a share; it raises, or the rest is read. It should raise for missing objects
    and for an unavailable store: without them the answer would be wrong.
    """

    def __init__(
        self, engine: QueryEngine, question: Question, wish: SampleColumns, on_damage: Callable[[Damage], None]
    ) -> None:
        wish.check()
        self._engine = engine
        self._question = question
        self._wish = wish
        self._on_damage = on_damage

    def batches(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Yield the samples of a share. Raises the errors of ``on_damage``, QueryTooLarge or InvalidQuestion."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._small_batches(share):
            if waiting and (rows + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES):
                yield pa.concat_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
        if waiting:
            yield pa.concat_batches(waiting)

    def _small_batches(self, share: Share) -> Iterator[pa.RecordBatch]:
        """Yield batches of one dataset each."""
        narrowed = replace(
            self._question,
            start_ms=max(self._question.start_ms, share.start_ms),
            end_ms=min(self._question.end_ms, share.end_ms),
        )
        run = self._engine.run(UNLIMITED)
        cuts = self._cuts(run, share)
        datasets = [dataset for block in share.blocks for dataset in profile_datasets(block)]
        duplicates = Duplicates(datasets, REMEMBERED_ROWS_MAX)
        reported = 0
        for opened, series in run.in_order(share.blocks, self._question):
            reported = self._tell(run, reported)
            if error := self._odd_times(opened.dataset, series, share):
                run.damaged(opened, error)
            own = [entry for entry in series if bisect_right(cuts, entry.labels) == share.part]
            yield from self._dataset(run, opened, narrowed, own, duplicates)
            reported = self._tell(run, reported)
        self._tell(run, reported)

    def _odd_times(self, dataset: QueryDataset, series: Sequence[IndexedSeries], share: Share) -> BadObject | None:
        """Return an error if a dataset has rows outside its time range, where no share reads them."""
        if dataset.max_time_ms == 0 or not series:
            return None
        first_ms = max(min(entry.min_time_ns for entry in series) // NANOS_PER_MS, self._question.start_ms)
        last_ms = min(max(entry.max_time_ns for entry in series) // NANOS_PER_MS, self._question.end_ms)
        if first_ms < share.start_ms <= dataset.min_time_ms or last_ms > share.end_ms >= dataset.max_time_ms:
            reason = f"series of {first_ms} to {last_ms} ms in a dataset of {dataset.min_time_ms} to"
            return BadObject("series_index", -1, f"{reason} {dataset.max_time_ms} ms")
        return None

    def _tell(self, run: QueryRun, reported: int) -> int:
        damage = run.damage
        for each in damage[reported:]:
            self._on_damage(each)
        return len(damage)

    def _cuts(self, run: QueryRun, share: Share) -> list[tuple[tuple[bytes, bytes], ...]]:
        """Return the labels at which parts after the first begin; equal in every reader of the parts."""
        if share.parts == 1:
            return []
        block, dataset = share.largest
        opened = OpenDataset(
            ObjectReader(self._engine.store, block.key, block.size), dataset, self._engine.cache, run.phase
        )
        try:
            series = SeriesFilter(self._question.matchers).matching(opened.series())
        except BadObject:
            return []  # no cut: the first part reads everything else
        except StorageError as error:  # other readers may succeed and would cut elsewhere
            damage = Damage(key=block.key, tenant=dataset.tenant, service=dataset.name, error=error)
            self._on_damage(damage)
            raise
        labels = sorted(entry.labels for entry in series)
        return [labels[len(labels) * part // share.parts] for part in range(1, share.parts)] if labels else []

    def _dataset(
        self, run: QueryRun, opened: OpenDataset, question: Question, own: list[IndexedSeries], duplicates: Duplicates
    ) -> Iterator[pa.RecordBatch]:
        parts = SampleParts.OWNED_STACKS if self._wish.has_stacks else SampleParts.OWNED_VALUES
        try:
            reader = RowReader(run, opened, question, own, duplicates, parts)
            if reader.series:
                columns = _Columns(opened, reader.series, self._wish)
                for rows in reader.rows(columns.verify):
                    for samples in rows.samples:
                        yield from columns.batches(rows, samples)
        except (BadObject, StorageError) as error:
            run.damaged(opened, error)


class _Columns:
    """Builds the columns of one dataset's samples."""

    def __init__(self, opened: OpenDataset, series: Sequence[IndexedSeries], wish: SampleColumns) -> None:
        self._opened = opened
        self._wish = wish
        self._stacks: dict[int, UnrolledStacks] = {}
        self._nodes_of: dict[int, Callable[[npt.NDArray[np.uint64]], npt.NDArray[np.int32]]] = {}
        self._places = np.zeros(max(entry.position for entry in series) + 1, np.int64)
        self._places[[entry.position for entry in series]] = np.arange(len(series))
        labels = [_labels(entry, wish.labels) for entry in series]
        sizes = [sum(len(name) + len(value) for name, value in own) for own in labels]
        self._label_bytes = np.array(sizes, np.int64) if "labels" in wish.columns else np.zeros(len(series), np.int64)
        self._of_series = {
            "labels": pa.array(labels, FIELDS["labels"].type),
            "type": pa.array([_type(entry) for entry in series], pa.string()),
            "service": pa.array([opened.dataset.name] * len(series), pa.string()),
        }

    def verify(self, samples: Sequence[Samples]) -> None:
        """Raise BadObject for stacks that are not in the dataset's symbols or that are too large."""
        if self._wish.has_stacks:
            for part in samples:
                self._stacks_of(part).bytes_of(self._nodes_of[part.partition](part.stack_ids))

    def batches(self, rows: Rows, samples: Samples) -> Iterator[pa.RecordBatch]:
        """Yield the samples of rows in bounded batches."""
        owners = samples.owners
        assert owners is not None
        series = self._places[rows.series[owners]]
        sizes = self._label_bytes[series] + ROW_BYTES
        nodes = None
        if self._wish.has_stacks:
            stacks = self._stacks_of(samples)
            nodes = self._nodes_of[samples.partition](samples.stack_ids)
            sizes += stacks.bytes_of(nodes)
        times = rows.times[owners] // 1_000
        for part in _bounded(sizes):
            arrays = {
                "time": pa.array(times[part], pa.int64()).view(FIELDS["time"].type),
                "value": pa.array(samples.values[part], pa.int64()),
            }
            if nodes is not None:
                arrays |= self._stack_arrays(stacks, nodes[part])
            own = pa.array(series[part])
            for name, values in self._of_series.items():
                if name in self._wish.columns:
                    arrays[name] = values.take(own)
            yield pa.RecordBatch.from_arrays([arrays[name] for name in self._wish.columns], schema=self._wish.schema)

    def _stack_arrays(self, stacks: UnrolledStacks, nodes: npt.NDArray[np.int32]) -> dict[str, pa.Array]:
        lists = stacks.lists(nodes)
        if "frames" not in self._wish.columns:
            return {"stack": _of_type(lists, lists.values, "stack")}
        return {
            "frames": _of_type(lists, lists.values, "frames"),
            "stack": _of_type(lists, lists.values.field("function"), "stack"),
        }

    def _stacks_of(self, samples: Samples) -> UnrolledStacks:
        number = samples.partition
        if number not in self._stacks:
            has_places = "frames" in self._wish.columns
            tables = self._opened.symbols(place_table if has_places else stack_table)
            if number not in tables:
                raise BadReference("profiles", -1, f"no symbols for partition {number}")
            self._stacks[number] = UnrolledStacks(tables[number], has_places=has_places)
            self._nodes_of[number] = tables[number].nodes_of
        return self._stacks[number]


def _bounded(sizes: npt.NDArray[np.int64]) -> Iterator[slice]:
    """Yield slices of rows with these sizes that form bounded batches."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start] - sizes[start]
        end = int(np.searchsorted(ends, before + BATCH_BYTES, side="right"))
        end = max(start + 1, min(end, start + BATCH_ROWS))
        yield slice(start, end)
        start = end


def _of_type(lists: pa.ListArray, values: pa.Array, name: str) -> pa.ListArray:
    """Return lists with other values, in the column's type."""
    kind = FIELDS[name].type
    if pa.types.is_struct(kind.value_type):
        values = pa.StructArray.from_arrays(values.flatten(), fields=list(kind.value_type))
    return pa.ListArray.from_arrays(lists.offsets, values, type=kind)


def _labels(entry: IndexedSeries, names: Sequence[str] | None) -> list[tuple[str, str]]:
    own = {name.decode(errors="replace"): value.decode(errors="replace") for name, value in entry.labels}
    if names is None:
        return [(name, value) for name, value in own.items() if not name.startswith(PRIVATE)]
    return [(name, value) for name, value in own.items() if name in names]


def _type(entry: IndexedSeries) -> str:
    return dict(entry.labels).get(PROFILE_TYPE.encode(), b"").decode(errors="replace")
