"""Find the stacks that each series of a dataset references, reading only the columns needed.

A split by series reads the stack ids twice: once to count them and once in label order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from engine.core.errors import BadObject, BadReference, MergeCancelled
from engine.formats.profile_block.merge_model import PROFILES, SERIES_INDEX, DatasetSource
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.series.series_index import decode_series_index
from engine.formats.profile_block.table.profile_table import ProfileTableReader, SectionFile, StackIds
from engine.lanes.profiles.merge.series_cut import STACK_SLOTS, SeriesReach, Slots, cut_by_series, stack_slots


class _SourceReach(NamedTuple):
    """The stacks that some rows of one series of one source reference."""

    labels: tuple[tuple[bytes, bytes], ...]
    fingerprint: int
    source: int
    number: int
    slots: Slots


def cut_dataset(
    sources: Sequence[DatasetSource], budget_bytes: int, cancelled: Callable[[], bool]
) -> list[list[set[int]]]:
    """Split a dataset into parts that fit the budget; return the series numbers of each part, by source."""
    counts = [_stack_count(source, cancelled) for source in sources]
    readers = [_reach(number, source, cancelled) for number, source in enumerate(sources)]
    rows = heapq.merge(*readers, key=lambda reach: reach[:2])
    series = (_joined(list(group)) for _, group in groupby(rows, key=lambda reach: reach[:2]))
    return cut_by_series(series, sources, counts, budget_bytes)


def _stack_count(source: DatasetSource, cancelled: Callable[[], bool]) -> int:
    reached = np.zeros(STACK_SLOTS, dtype=np.bool_)
    for ids in _read(source, cancelled):
        counts = np.diff(ids.offsets)
        first = ids.offsets[0]
        used = ids.stack_ids[first : ids.offsets[-1]]
        reached[stack_slots(np.repeat(ids.partitions, counts), used)] = True
    return int(np.count_nonzero(reached))


def _reach(source_number: int, source: DatasetSource, cancelled: Callable[[], bool]) -> Iterator[_SourceReach]:
    series = _series_by_number(source)
    for ids in _read(source, cancelled):
        starts = np.flatnonzero(np.diff(ids.series, prepend=ids.series[:1] + np.uint32(1)))
        for start, end in zip(starts, [*starts[1:], len(ids.series)], strict=True):
            number = int(ids.series[start])
            if number not in series:
                reason = f"a row has series {number}, which is not in the series index"
                raise BadReference("profiles", -1, reason, source.object_name)
            used = ids.stack_ids[ids.offsets[start] : ids.offsets[end]]
            partitions = np.repeat(ids.partitions[start:end], np.diff(ids.offsets[start : end + 1]))
            entry = series[number]
            yield _SourceReach(entry.labels, entry.fingerprint, source_number, number, stack_slots(partitions, used))


def _joined(rows: Sequence[_SourceReach]) -> SeriesReach:
    slots: dict[int, Slots] = {}
    numbers: dict[int, set[int]] = {}
    for row in rows:
        numbers.setdefault(row.source, set()).add(row.number)
        known = slots.get(row.source)
        slots[row.source] = row.slots if known is None else np.union1d(known, row.slots)
    return SeriesReach(numbers, slots)


def _series_by_number(source: DatasetSource) -> dict[int, IndexedSeries]:
    try:
        return {entry.position: entry for entry in decode_series_index(source.read_section(SERIES_INDEX))}
    except BadObject as error:
        raise error.in_object(source.object_name) from error


def _read(source: DatasetSource, cancelled: Callable[[], bool]) -> Iterator[StackIds]:
    try:
        for ids in ProfileTableReader(SectionFile(source.read, *source.section_bounds(PROFILES))).stack_ids():
            if cancelled():
                raise MergeCancelled("the merge was cancelled")
            if len(ids.series):
                yield ids
    except BadObject as error:
        raise error.in_object(source.object_name) from error
