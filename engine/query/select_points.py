"""Aggregate values over time: one series of points per group, each point the sum or mean of the profiles of a step.

The grid is start, start + step, up to the end. The point at ``t`` covers ``(t - step, t]``, so rows after
``start - step`` are read. A step without profiles has no point.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engine.core.errors import BadObject
from engine.formats.profile_block.model import IndexedSeries, Labels
from engine.query.dataset_reader import OpenDataset
from engine.query.duplicates import Duplicates
from engine.query.errors import InvalidQuestion, QueryTooLarge
from engine.query.execution import QueryRun
from engine.query.memory import points_max, seen_rows_max
from engine.query.model import NANOS_PER_MS, TIME_MAX_MS, QueryBlock, Question, profile_datasets
from engine.query.rows import RowReader, Rows
from engine.storage.model import StorageError

GROUP_LABELS_MAX = 100
STEP_MAX_MS = TIME_MAX_MS


class Aggregation(enum.StrEnum):
    """Aggregation of the values of a step."""

    SUM = "sum"
    AVERAGE = "average"


@dataclass(frozen=True, slots=True)
class Point:
    """The value of the step that ends at a time (unix milliseconds, inclusive)."""

    time_ms: int
    value: float


@dataclass(frozen=True, slots=True)
class PointSeries:
    """The points of the series with these labels, sorted by time."""

    labels: Labels
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The requested points: ``group_by`` are label names, ``limit`` is the maximum number of series, 0 for all."""

    start_ms: int
    end_ms: int
    step_ms: int
    group_by: tuple[str, ...] = ()
    aggregation: Aggregation = Aggregation.SUM
    limit: int = 0

    def check(self, points_max: int) -> None:
        """Raise InvalidQuestion or QueryTooLarge."""
        if self.step_ms < 1:
            raise InvalidQuestion("step must be >= 1ms")
        if self.start_ms > self.end_ms:
            raise InvalidQuestion("query start time is after end time")
        if len(self.group_by) > GROUP_LABELS_MAX:
            raise InvalidQuestion(f"groups by {len(self.group_by)} labels; {GROUP_LABELS_MAX} are allowed")
        if self.step_ms > STEP_MAX_MS:
            raise InvalidQuestion(f"step must be <= {STEP_MAX_MS} ms")
        if self.limit < 0:
            raise InvalidQuestion("the limit of series is negative")
        if (self.end_ms - self.start_ms) // self.step_ms >= points_max:
            raise QueryTooLarge("points per series", points_max)

    @property
    def first_ms(self) -> int:
        """Return the earliest time of rows of the first point."""
        return self.start_ms - self.step_ms + 1

    @property
    def last_ms(self) -> int:
        """Return the time of the last point; later rows are ignored."""
        return self.start_ms + (self.end_ms - self.start_ms) // self.step_ms * self.step_ms


@dataclass(slots=True)
class _Bucket:
    total: int = 0
    count: int = 0


_Found = dict[Labels, tuple[npt.NDArray[np.int64], list[int], npt.NDArray[np.int64]]]
"""By group: steps, sums and counts."""


def select_points(run: QueryRun, blocks: Sequence[QueryBlock], question: Question, grid: Grid) -> list[PointSeries]:
    """Return the points of matching rows: largest sum of points first, then by labels.

    The grid replaces the range of ``question``. Raises QueryTooLarge, QueryTimedOut, InvalidQuestion.
    """
    grid.check(run.limits.points)
    narrowed = replace(question, start_ms=grid.first_ms, end_ms=grid.last_ms)
    datasets = (dataset for block in blocks for dataset in profile_datasets(block) if narrowed.may_be_in(dataset))
    duplicates = Duplicates(datasets, seen_rows_max(run.limits))

    def read(dataset: OpenDataset, series: list[IndexedSeries]) -> list[_Found]:
        reader = RowReader(run, dataset, narrowed, series, duplicates)
        groups = _Groups(reader.series, grid)
        found: list[_Found] = []
        try:
            for rows in reader.rows():
                with run.phase("rows"):
                    found.append(groups.sums(rows))
        except (BadObject, StorageError) as error:
            run.damaged(dataset, error)  # rows read before count
        return found

    sums: defaultdict[Labels, defaultdict[int, _Bucket]] = defaultdict(lambda: defaultdict(_Bucket))
    points = 0
    for results in run.over(blocks, narrowed, read):
        with run.phase("merge"):
            for result in results:
                points += _merge(sums, result)
            if points > points_max(run.limits):
                raise QueryTooLarge("points", points_max(run.limits))
            if len(sums) > run.limits.series:
                raise QueryTooLarge("series", run.limits.series)
    with run.phase("merge"):
        return _in_order(sums, grid)


class _Groups:
    """Aggregates the rows of a dataset by group and step."""

    def __init__(self, series: Sequence[IndexedSeries], grid: Grid) -> None:
        self._grid = grid
        numbers: dict[Labels, int] = {}
        self._of_series = np.zeros(max((entry.position for entry in series), default=-1) + 1, np.int64)
        for entry in series:
            self._of_series[entry.position] = numbers.setdefault(group_labels(entry, grid.group_by), len(numbers))
        self._labels = list(numbers)

    def sums(self, rows: Rows) -> _Found:
        """Return sums and counts of rows by group and step."""
        grid = self._grid
        steps = -((grid.start_ms - rows.times // NANOS_PER_MS) // grid.step_ms)  # rounded up
        groups = self._of_series[rows.series]
        found: _Found = {}
        for number in np.unique(groups).tolist():
            own = groups == number
            places, inverse = np.unique(steps[own], return_inverse=True)
            counts = np.bincount(inverse, minlength=len(places))
            found[self._labels[number]] = (places, exact_sums(rows.totals[own], inverse, len(places)), counts)
        return found


def exact_sums(values: npt.NDArray[np.int64], places: npt.NDArray[np.intp], count: int) -> list[int]:
    """Return the exact sum of the values of each place; sums of 32-bit halves do not overflow."""
    high, low = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(high, places, values >> 32)
    np.add.at(low, places, values & 0xFFFFFFFF)
    return [(upper << 32) + lower for upper, lower in zip(high.tolist(), low.tolist(), strict=True)]


def group_labels(series: IndexedSeries, names: Sequence[str]) -> Labels:
    """Return the labels of a series with these names, in the order of ``names``; the first of duplicates."""
    own = dict(reversed(series.labels))
    wanted = ((name, own.get(name.encode())) for name in names)
    return tuple((name, value.decode(errors="replace")) for name, value in wanted if value is not None)


def _merge(sums: defaultdict[Labels, defaultdict[int, _Bucket]], found: _Found) -> int:
    """Add the sums of a dataset; return the number of new points."""
    new = 0
    for labels, (steps, totals, counts) in found.items():
        buckets = sums[labels]
        new -= len(buckets)
        for step, total, count in zip(steps.tolist(), totals, counts.tolist(), strict=True):
            buckets[step].total += total
            buckets[step].count += count
        new += len(buckets)
    return new


def _in_order(sums: defaultdict[Labels, defaultdict[int, _Bucket]], grid: Grid) -> list[PointSeries]:
    found = []
    for labels, buckets in sums.items():
        points = tuple(
            Point(grid.start_ms + step * grid.step_ms, _value(bucket, grid.aggregation))
            for step, bucket in sorted(buckets.items())
        )
        found.append(PointSeries(labels, points))
    found.sort(key=lambda each: (-sum(point.value for point in each.points), each.labels))
    return found[: grid.limit or None]


def _value(bucket: _Bucket, aggregation: Aggregation) -> float:
    return bucket.total / bucket.count if aggregation is Aggregation.AVERAGE else float(bucket.total)
