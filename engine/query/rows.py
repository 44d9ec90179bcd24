"""Read the matching rows of a dataset: selected by series, time, ID and masks, and deduplicated.

The small columns of a row group are read first; its samples, most of its bytes, only if a row matches.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.profile_block.merge_model import READ_BATCH_BYTES, ROW_BYTES, SAMPLE_BYTES
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.table.profile_table import ProfileTableReader
from engine.lanes.profiles.merge.masks import HiddenRows
from engine.query.dataset_reader import OpenDataset
from engine.query.duplicates import Duplicates
from engine.query.execution import QueryRun
from engine.query.model import NANOS_PER_MS, Question

SERIES, TIME, ID, TOTAL, PARTITION = "SeriesIndex", "TimeNanos", "ID", "TotalValue", "StacktracePartition"
STACKS, VALUES = "Samples.list.element.StacktraceID", "Samples.list.element.Value"
SPANS, TRACES = "Samples.list.element.SpanID", "Samples.list.element.TraceID"
PLACES = (SERIES, TIME)
KEYS = (ID, SERIES, TOTAL, TIME)
SMALL_BYTES = 64 << 10
"""Maximum size of a row group's samples that are read together with its small columns."""
SERIES_MAX = 1 << 24
"""Maximum series number; series of a dataset are numbered from 0 without gaps."""
_SECTION = "profiles"
_NONE = frozenset[int]()
_NO_STACKS = np.empty(0, np.uint64)
_TYPES = {
    SERIES: pa.uint32(),
    TIME: pa.int64(),
    TOTAL: pa.uint64(),
    PARTITION: pa.uint64(),
}

Keys = dict[str, npt.NDArray[Any]]


class SampleParts(enum.Enum):
    """The parts of samples to read. Sums need no owners; without stacks neither their column nor symbols are read."""

    STACKS = enum.auto()
    OWNED_STACKS = enum.auto()
    OWNED_VALUES = enum.auto()


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of some rows: one partition, stack ids and values.

    ``owners`` are the positions of their rows in ``Rows``. Without stacks, all samples are in partition 0 and have no
    stack ids.
    """

    partition: int
    stack_ids: npt.NDArray[np.uint64]
    values: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Matching rows of one row group: series numbers, times in nanoseconds, sums of values."""

    series: npt.NDArray[np.uint32]
    times: npt.NDArray[np.int64]
    totals: npt.NDArray[np.int64]
    samples: tuple[Samples, ...] = ()


SamplesOf = Callable[[npt.NDArray[np.bool_]], tuple[Samples, ...]]
"""Returns the samples of the selected rows of a part."""
Verify = Callable[[Sequence[Samples]], None]
"""Raises BadObject for samples with invalid references."""


class RowReader:
    """Reader of the rows of a dataset whose series are in ``series``."""

    def __init__(
        self,
        run: QueryRun,
        dataset: OpenDataset,
        question: Question,
        series: Sequence[IndexedSeries],
        duplicates: Duplicates | None = None,
        parts: SampleParts = SampleParts.STACKS,
    ) -> None:
        self._run = run
        self._parts = parts
        self._dataset = dataset
        self._question = question
        self._duplicates = duplicates
        self._has_strays = False
        self._hidden = HiddenRows.of(series, dataset.dataset.masks) if dataset.dataset.masks else HiddenRows(_NONE, ())
        if any(entry.position >= SERIES_MAX for entry in series):
            raise LimitExceeded("series_index", -1, f"a series has a number beyond {SERIES_MAX}")
        shown = [entry for entry in series if entry.position not in self._hidden.series]
        self._is_wanted = np.zeros(max((entry.position for entry in shown), default=-1) + 1, np.bool_)
        self._numbers = np.zeros(len(self._is_wanted), np.uint64)
        places = [entry.position for entry in shown]
        self._is_wanted[places] = True
        if duplicates is not None:
            self._numbers[places] = duplicates.number(dataset.dataset, shown)
        self.series = shown

    @property
    def is_whole(self) -> bool:
        """Return whether no row of these series is masked by time."""
        return not self._hidden.intervals

    def rows(self, verify: Verify | None = None) -> Iterator[Rows]:
        """Yield the rows, a row group or a part of one at a time, and mark them as counted. Raises BadObject.

        With ``verify`` the rows include their samples; it checks the samples before their rows are marked.
        """
        for table, number in self._groups():
            paths = (*KEYS, *self._sample_paths()) if verify is not None else KEYS
            if self._reads_all(table, number):
                self._hold(table, number, paths)
            else:
                self._hold(table, number, KEYS)
            keys = self._keys(table, number, KEYS)
            keep = self._selected(keys[SERIES], keys[TIME])
            if self._question.profile_ids:
                keep &= np.array([row_id in self._question.profile_ids for row_id in keys[ID].tolist()], np.bool_)
            keep = self._without_strays(keys[TIME], keep)
            parts: list[tuple[slice, SamplesOf]] = [(slice(0, len(keep)), _no_samples)]
            if verify is not None and keep.any():
                self._hold(table, number, paths)
                # Read the whole group before any row is marked: if it is damaged, another block may have the rows.
                parts = list(self._samples(table, number, keys, keep))
                for part, samples in parts:
                    verify(samples(keep[part]))
            for part, samples in parts:
                yield from self._claimed(keys, keep, part, samples)
            self._dataset.drop()

    def series_with_rows(self, wanted: Iterable[int]) -> set[int]:
        """Return the series numbers with a matching row, without marking rows as counted."""
        left, found = set(wanted), set[int]()
        if not left:
            return found
        for table, number in self._groups():
            self._hold(table, number, PLACES)
            keys = self._keys(table, number, PLACES)
            keep = self._selected(keys[SERIES], keys[TIME])
            found |= left & set(np.unique(keys[SERIES][keep]).tolist())
            self._dataset.drop()
            if found == left:
                break
        return found

    def _groups(self) -> Iterator[tuple[ProfileTableReader, int]]:
        """Yield the row groups that may have matching rows according to the footer."""
        if not self._is_wanted.any():
            return
        table = self._dataset.table()
        for number in range(len(table.group_sizes)):
            self._run.check()
            if table.group_sizes[number][0] and self._may_be_in(table, number):
                yield table, number

    def _may_be_in(self, table: ProfileTableReader, number: int) -> bool:
        times, series = table.bounds(number, TIME), table.bounds(number, SERIES)
        if times and times[0] <= times[1] and (times[1] < self._question.start_ns or times[0] > self._question.end_ns):
            return False
        return not series or bool(self._is_wanted[max(series[0], 0) : series[1] + 1].any())

    def _reads_all(self, table: ProfileTableReader, number: int) -> bool:
        """Return whether every row of a group matches or the group is small, so that one read is enough."""
        times, series = table.bounds(number, TIME), table.bounds(number, SERIES)
        if sum(end - start for start, end in table.column_ranges(number, (STACKS, VALUES))) <= SMALL_BYTES:
            return True
        if not times or not series or self._question.profile_ids:
            return False
        in_time = times[0] >= self._question.start_ns and times[1] <= self._question.end_ns
        return (
            in_time
            and series[0] >= 0
            and series[1] < len(self._is_wanted)
            and bool(self._is_wanted[series[0] : series[1] + 1].all())
        )

    def _hold(self, table: ProfileTableReader, number: int, paths: Sequence[str]) -> None:
        with self._run.phase("open"):
            self._dataset.hold(table.column_ranges(number, paths))

    def _keys(self, table: ProfileTableReader, number: int, paths: Sequence[str]) -> Keys:
        with self._run.phase("rows"):
            batches = list(table.columns(number, paths, table.group_sizes[number][0]))
            return {path: np.concatenate([_column(batch, path) for batch in batches]) for path in paths}

    def _selected(self, series: npt.NDArray[np.uint32], times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        inside = series < len(self._is_wanted)
        keep = inside & self._is_wanted[np.where(inside, series, 0)]
        keep &= (times >= self._question.start_ns) & (times <= self._question.end_ns)
        if self._hidden.intervals:
            keep &= ~self._hidden.in_intervals(series, times)
        return keep

    def _without_strays(self, times: npt.NDArray[np.int64], keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Drop rows outside the time range of the dataset's metadata and record them as damage.

        Queries of other ranges would not find them, and deduplication relies on the range.
        """
        known = self._dataset.dataset
        if not known.max_time_ms:
            return keep
        milliseconds = times // NANOS_PER_MS
        inside = (milliseconds >= known.min_time_ms) & (milliseconds <= known.max_time_ms)
        if not self._has_strays and (keep & ~inside).any():
            self._has_strays = True
            self._run.damaged(self._dataset, BadObject(_SECTION, -1, "rows outside of the times in the metadata"))
        return keep & inside

    def _claimed(self, keys: Keys, keep: npt.NDArray[np.bool_], part: slice, samples: SamplesOf) -> Iterator[Rows]:
        """Yield the rows of the part that were not counted before."""
        with self._run.phase("rows"):
            chosen = keep[part].copy()
            series, times = keys[SERIES][part], keys[TIME][part]
            if self._duplicates is not None and chosen.any():
                chosen[chosen] = self._duplicates.claim(
                    self._dataset.dataset, self._numbers[series[chosen]], times[chosen], keys[ID][part][chosen]
                )
            if not chosen.any():
                return
            self._run.count_rows(int(chosen.sum()))
            found = Rows(series[chosen], times[chosen], keys[TOTAL][part][chosen], samples(chosen))
        yield found

    def _sample_paths(self) -> tuple[str, ...]:
        spans = (SPANS,) if self._question.span_ids else ()
        traces = (TRACES,) if self._question.trace_ids else ()
        stacks = () if self._parts is SampleParts.OWNED_VALUES else (PARTITION, STACKS)
        return (*stacks, VALUES, *spans, *traces)

    def _samples(
        self, table: ProfileTableReader, number: int, keys: Keys, keep: npt.NDArray[np.bool_]
    ) -> Iterator[tuple[slice, SamplesOf]]:
        """Yield parts of a row group, each with a function that returns samples of its rows."""
        rows, samples = table.group_sizes[number]
        decoded = rows * ROW_BYTES + samples * SAMPLE_BYTES
        batch_rows = max(1, rows * READ_BATCH_BYTES // max(decoded, READ_BATCH_BYTES))
        start = 0
        with self._run.phase("rows"):
            for batch in table.columns(number, self._sample_paths(), batch_rows):
                part = slice(start, start + batch.num_rows)
                start = part.stop
                if keep[part].any():
                    yield part, _SampleReader(batch, keys[TOTAL][part], self._question, self._parts)
                self._run.check()


class _SampleReader:
    """Validates the samples of a batch and returns those of selected rows."""

    def __init__(
        self, batch: pa.RecordBatch, totals: npt.NDArray[np.int64], question: Question, parts: SampleParts
    ) -> None:
        samples = batch.column("Samples")
        if not pa.types.is_list(samples.type) or samples.null_count:
            raise UnknownFormat(_SECTION, -1, f"Samples are {samples.type}")
        self._offsets = samples.offsets.to_numpy()
        inner = samples.values
        self._values = _flat(_field(inner, "Value"), pa.int64())
        self._has_owners = parts is not SampleParts.STACKS
        self._stacks, self._partitions = _NO_STACKS, None
        if parts is not SampleParts.OWNED_VALUES:
            self._stacks, self._partitions = (
                _flat(_field(inner, "StacktraceID"), pa.uint64()),
                _column(batch, PARTITION),
            )
        sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(self._values)))
        wrong = np.flatnonzero(sums[self._offsets[1:]] - sums[self._offsets[:-1]] != totals)
        if len(wrong):
            raise BadObject(_SECTION, -1, f"the values of row {wrong[0]} of a batch do not sum up to its TotalValue")
        self._allowed = _asked(inner, question)

    def __call__(self, chosen: npt.NDArray[np.bool_]) -> tuple[Samples, ...]:
        lengths = np.diff(self._offsets)
        keep = np.zeros(len(self._values), np.bool_)
        keep[self._offsets[0] : self._offsets[-1]] = np.repeat(chosen, lengths)
        keep &= self._values > 0
        if self._allowed is not None:
            keep &= self._allowed
        if self._partitions is None:
            return (Samples(0, _NO_STACKS, self._values[keep], self._owners(chosen, keep)),)
        partitions = np.unique(self._partitions[chosen])
        if len(partitions) == 1:
            return (self._found(int(partitions[0]), chosen, keep),)
        where = np.zeros(len(self._values), np.uint64)
        where[self._offsets[0] : self._offsets[-1]] = np.repeat(self._partitions, lengths)
        return tuple(self._found(int(partition), chosen, keep & (where == partition)) for partition in partitions)

    def _found(self, partition: int, chosen: npt.NDArray[np.bool_], keep: npt.NDArray[np.bool_]) -> Samples:
        return Samples(partition, self._stacks[keep], self._values[keep], self._owners(chosen, keep))

    def _owners(self, chosen: npt.NDArray[np.bool_], keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64] | None:
        """Return for each kept sample the position of its row among the selected ones."""
        if not self._has_owners:
            return None
        places = np.repeat(np.cumsum(chosen) - 1, np.diff(self._offsets))
        return places[keep[self._offsets[0] : self._offsets[-1]]]


def _no_samples(chosen: npt.NDArray[np.bool_]) -> tuple[Samples, ...]:
    return ()


def _column(batch: pa.RecordBatch, path: str) -> npt.NDArray[Any]:
    """Return a required column of integers or IDs as an array."""
    array = batch.column(path)
    if array.null_count:
        raise BadObject(_SECTION, -1, f"column {path} has nulls")
    if path == ID:
        array = array.storage if isinstance(array, pa.ExtensionArray) else array
        if array.type != pa.binary(16):
            raise UnknownFormat(_SECTION, -1, f"column {path} is {array.type}")
        return np.frombuffer(array.buffers()[1], "V16", len(array), 16 * array.offset)
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.int64())
    found = _flat(array, _TYPES[path])
    return found.view(np.int64) if path == TOTAL else found


def _flat(array: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    if array.type != kind or array.null_count:
        raise UnknownFormat(_SECTION, -1, f"a column is {array.type} or has nulls, not {kind}")
    found: npt.NDArray[Any] = array.to_numpy()
    return found


def _field(samples: pa.Array, name: str) -> pa.Array:
    if not pa.types.is_struct(samples.type) or samples.type.get_field_index(name) < 0:
        raise UnknownFormat(_SECTION, -1, f"samples are {samples.type}")
    return samples.field(samples.type.get_field_index(name))


def _asked(samples: pa.Array, question: Question) -> npt.NDArray[np.bool_] | None:
    """Return which samples have one of the requested spans or traces; None if none is requested."""
    if question.span_ids:
        name, wanted = "SpanID", pa.array(sorted(question.span_ids), pa.uint64())
    elif question.trace_ids:
        name, wanted = "TraceID", pa.array(sorted(question.trace_ids), pa.binary(16))
    else:
        return None
    if samples.type.get_field_index(name) < 0:  # a table from before there were any
        return np.zeros(len(samples), np.bool_)
    found = _field(samples, name)
    if found.type != wanted.type:
        raise UnknownFormat(_SECTION, -1, f"{name} is {found.type}")
    allowed: npt.NDArray[np.bool_] = pc.is_in(found, wanted).to_numpy(zero_copy_only=False)
    return allowed
