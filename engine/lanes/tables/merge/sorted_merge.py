"""Merge sorted pieces of rows in memory, and sorted streams.

Rows with equal keys keep the order of their pieces or streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.formats.parquet.errors import NotSorted
from engine.lanes.tables.merge.key_arrays import Keys
from engine.lanes.tables.merge.row_order import first_unsorted, merge_runs
from engine.lanes.tables.merge.sort_keys import RowOrder

OUTPUT_ROWS = 1 << 18
"""Rows that a merge yields at once."""
LONG_SEGMENT_ROWS = 32
"""Mean segment length from which copying segments is faster than gathering single rows."""


@dataclass(slots=True)
class Window:
    """Consecutive rows of a run, and their keys."""

    table: pa.Table
    keys: Keys


def sorted_piece(table: pa.Table, order: RowOrder) -> Window:
    """Return rows sorted; rows that are already sorted are not copied."""
    window = Window(table, order.keys(table))
    if first_unsorted(window.keys) < 0:
        return window
    table = take_rows(table, _sorted_places(window.keys))
    return Window(table, order.keys(table))


def merge_sorted(runs: Sequence[Iterable[pa.Table]], order: RowOrder, names: Sequence[str]) -> Iterator[pa.Table]:
    """Merge sorted streams of rows; ``names`` identify them in errors. Raises NotSorted."""
    yield from _Merge([_Run(iter(run), order, name) for run, name in zip(runs, names, strict=True)]).tables()


def merge_windows(windows: Sequence[Window]) -> Iterator[pa.Table]:
    """Merge sorted pieces in memory."""
    runs = []
    for window in windows:
        if window.table.num_rows:
            run = _Run(iter(()), RowOrder(()), "")
            run.window, run.is_over = window, True
            runs.append(run)
    yield from _Merge(runs).tables()


def take_rows(table: pa.Table, places: npt.NDArray[np.int64]) -> pa.Table:
    """Return the rows at these positions."""
    columns = [_taken(column, pa.array(places)) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def _taken(column: pa.ChunkedArray, places: pa.Array) -> pa.Array | pa.ChunkedArray:
    combined = column.combine_chunks()
    return pc.take(combined, places, boundscheck=False)


def _sorted_places(keys: Keys) -> npt.NDArray[np.int64]:
    if not len(keys.offsets):
        return np.argsort(keys.heads, kind="stable")
    buffers = [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
    whole = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
    places: npt.NDArray[np.int64] = pc.array_sort_indices(whole).to_numpy().astype(np.int64)
    return places


class _Run:
    """A sorted stream, read window by window."""

    def __init__(self, tables: Iterator[pa.Table], order: RowOrder, name: str) -> None:
        self._tables = tables
        self._order = order
        self._name = name
        self._rows = 0
        self._last: bytes | None = None
        self.window: Window | None = None
        self.is_over = False

    def refill(self) -> None:
        """Advance to the next window with rows; afterwards ``window`` is set or ``is_over`` is True."""
        for table in self._tables:
            if table.num_rows:
                keys = self._order.keys(table)
                self._check(keys)
                self.window = Window(table, keys)
                return
        self.window, self.is_over = None, True

    def _check(self, keys: Keys) -> None:
        row = 0 if self._last is not None and keys.key(0) < self._last else first_unsorted(keys)
        if row >= 0:
            raise NotSorted(self._name, self._rows + row)
        self._rows += len(keys)
        self._last = keys.key(len(keys) - 1)


class _Merge:
    def __init__(self, runs: list[_Run]) -> None:
        self._runs = runs

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows of all runs in order."""
        for run in self._runs:
            if run.window is None and not run.is_over:
                run.refill()
        runs = [run for run in self._runs if run.window is not None]
        positions = np.zeros(len(runs), np.int64)
        while runs:
            goes_on = np.array([not run.is_over for run in runs], np.uint8)
            starts = positions.copy()
            keys = [run.window.keys for run in runs if run.window is not None]
            segments = merge_runs(keys, positions, goes_on, OUTPUT_ROWS)
            yield _gathered([run.window.table for run in runs if run.window is not None], starts, positions, segments)
            kept = []
            for place, run in enumerate(runs):
                if run.window is not None and positions[place] == len(run.window.keys):
                    positions[place] = 0
                    run.window = None
                    if not run.is_over:
                        run.refill()
                if run.window is not None:
                    kept.append(place)
            if len(kept) < len(runs):
                positions = positions[kept]
                runs = [runs[place] for place in kept]


def _gathered(
    tables: Sequence[pa.Table],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    segments: tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], npt.NDArray[np.int64]],
) -> pa.Table:
    """Return the rows of segments; each run's rows lie between its start and end."""
    numbers, firsts, counts = segments
    rows = int(counts.sum())
    if len(numbers) * LONG_SEGMENT_ROWS <= rows:
        slices = zip(numbers.tolist(), firsts.tolist(), counts.tolist(), strict=True)
        return pa.concat_tables([tables[number].slice(first, count) for number, first, count in slices])
    used = np.flatnonzero(ends > starts)
    spans = zip(used.tolist(), starts[used].tolist(), (ends - starts)[used].tolist(), strict=True)
    combined = pa.concat_tables([tables[number].slice(start, count) for number, start, count in spans])
    # Each run's start in the combined table, minus its start in its window.
    shifts = np.zeros(len(tables), np.int64)
    shifts[used] = np.cumsum(np.append(0, (ends - starts)[used]))[:-1] - starts[used]
    bounds = np.cumsum(counts) - counts
    places = np.arange(rows, dtype=np.int64) + np.repeat(firsts + shifts[numbers] - bounds, counts)
    return take_rows(combined, places)
