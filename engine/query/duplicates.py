"""Deduplicate rows across blocks: rows with equal series, time and ID are one row.

A profile that was pushed twice, or to two replicas, is in two segments until a merge drops one copy. Answers must not
depend on that merge. Rows are remembered only where datasets of a service overlap in time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from engine.formats.profile_block.model import IndexedSeries
from engine.query.errors import QueryTooLarge
from engine.query.model import NANOS_PER_MS, TIME_MAX_MS, QueryDataset

_KEY = np.dtype([("series", "<u8"), ("time", "<i8"), ("id", "V16")])

Service = tuple[str, str]


class Duplicates:
    """The rows counted so far where a duplicate is possible. Thread-safe."""

    def __init__(self, datasets: Iterable[QueryDataset], rows_max: int) -> None:
        spans: defaultdict[Service, list[tuple[int, int]]] = defaultdict(list)
        for dataset in datasets:
            unknown = dataset.max_time_ms == 0
            span = (-TIME_MAX_MS, TIME_MAX_MS) if unknown else (dataset.min_time_ms, dataset.max_time_ms)
            spans[dataset.tenant, dataset.name].append(span)
        self._shared = {service: shared_times(own) for service, own in spans.items()}
        self._rows_max = rows_max
        self._lock = threading.Lock()
        self._numbers: dict[tuple[Service, IndexedSeries], int] = {}
        self._seen: set[bytes] = set()

    def number(self, dataset: QueryDataset, series: Sequence[IndexedSeries]) -> npt.NDArray[np.uint64]:
        """Return a number for each series that is equal in all datasets of the service."""
        service = (dataset.tenant, dataset.name)
        plain = [(service, entry._replace(min_time_ns=0, max_time_ns=0, position=0)) for entry in series]
        with self._lock:
            numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in plain]
        return np.array(numbers, np.uint64)

    def claim(
        self,
        dataset: QueryDataset,
        series: npt.NDArray[np.uint64],
        times: npt.NDArray[np.int64],
        ids: npt.NDArray[np.void],
    ) -> npt.NDArray[np.bool_]:
        """Return for each row whether it was not counted before, and mark it as counted."""
        new = np.ones(len(series), np.bool_)
        doubtful = np.flatnonzero(self._may_be_twice(dataset, series, times))
        if not len(doubtful):
            return new
        keys = np.empty(len(doubtful), _KEY)
        keys["series"], keys["time"], keys["id"] = series[doubtful], times[doubtful], ids[doubtful]
        rows = keys.view("V32").tolist()
        with self._lock:
            for place, row in zip(doubtful.tolist(), rows, strict=True):
                before = len(self._seen)
                self._seen.add(row)
                new[place] = len(self._seen) > before
            if len(self._seen) > self._rows_max:
                raise QueryTooLarge("rows", self._rows_max)
        return new

    def _may_be_twice(
        self, dataset: QueryDataset, series: npt.NDArray[np.uint64], times: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        starts, ends = self._shared[dataset.tenant, dataset.name]
        milliseconds = times // NANOS_PER_MS
        zone = np.searchsorted(starts, milliseconds, side="right") - 1
        found = np.zeros(len(times), np.bool_)
        if len(starts):
            found = (zone >= 0) & (milliseconds <= ends[np.maximum(zone, 0)])
        # Equal rows of a dataset are adjacent; the neighbours outside the batch are unknown.
        same = (series[1:] == series[:-1]) & (times[1:] == times[:-1])
        found[1:] |= same
        found[:-1] |= same
        found[:1] = found[-1:] = True
        return found


def shared_times(spans: Iterable[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the starts and ends of the closed intervals where at least two spans overlap: disjoint and sorted."""
    events = sorted(event for start, end in spans for event in ((start, 0, 1), (end, 1, -1)))
    zones: list[list[int]] = []
    depth = 0
    for time, _, change in events:
        depth += change
        if change == 1 and depth == 2:
            zones.append([time, time])
        elif change == -1 and depth == 1:
            zones[-1][1] = time
    return np.array([zone[0] for zone in zones], np.int64), np.array([zone[1] for zone in zones], np.int64)
