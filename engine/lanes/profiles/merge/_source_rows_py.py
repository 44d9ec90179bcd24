"""One source of the pure Python merge: its rows in order, and the symbols that they reference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pyarrow as pa

from engine.core.errors import BadObject, BadReference, MergeCancelled
from engine.formats.profile_block.merge_model import (
    PROFILES,
    SERIES_INDEX,
    STREAMED_PROFILES_BYTES,
    SYMBOLS,
    DatasetSource,
)
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.series._series_index_py import decode_series_index
from engine.formats.profile_block.symbols._symbol_merge_py import SourcePartition
from engine.formats.profile_block.symbols._symbols_py import decode_symbols
from engine.formats.profile_block.table.profile_table import SAMPLES, ProfileTableReader, SectionFile

RowKey = tuple[tuple[tuple[bytes, bytes], ...], int, int]
"""Merge key of rows: (labels, fingerprint, TimeNanos)."""


class Row(NamedTuple):
    """A row of a source: the columns that the merge compares, and the position of the rest in ``batch``."""

    key: RowKey
    id: bytes
    source: int
    partition: int
    stack_ids: list[int]
    batch: pa.RecordBatch
    position: int


@contextmanager
def naming(object_name: str) -> Iterator[None]:
    """Add the object's name to a BadObject raised in the context."""
    try:
        yield
    except BadObject as error:
        if error.object_name:
            raise
        raise error.in_object(object_name) from error


class SourceRows:
    """Reader of one source. ``kept`` holds the SeriesIndex values to keep, None for all series."""

    def __init__(
        self, number: int, source: DatasetSource, kept: Collection[int] | None, cancelled: Callable[[], bool]
    ) -> None:
        self._number = number
        self._source = source
        self._kept = kept
        self._cancelled = cancelled
        self._series: dict[int, IndexedSeries] = {}
        self._partitions: dict[int, SourcePartition] = {}

    def load(self) -> None:
        """Read series index and symbols; with a selection, keep only the symbols that its rows reference."""
        self._stop_if_cancelled()
        if self._kept is not None and not self._kept:
            return
        with naming(self._source.object_name):
            for entry in decode_series_index(self._source.read_section(SERIES_INDEX)):
                if self._series.setdefault(entry.position, entry) is not entry:
                    raise BadReference("series_index", -1, f"two series have number {entry.position}")
        self._stop_if_cancelled()
        reached = None if self._kept is None else self._reached_stacks()
        with naming(self._source.object_name):
            for partition in decode_symbols(self._source.read_section(SYMBOLS)):
                stacks = None if reached is None else reached.get(partition.id, set())
                self._partitions[partition.id] = SourcePartition(partition, stacks)

    def partition(self, partition_id: int) -> SourcePartition:
        """Return the symbols of a partition. Raises BadReference if the source has no partition with this id."""
        if partition_id not in self._partitions:
            raise BadReference("profiles", -1, f"no symbols for partition {partition_id}", self._source.object_name)
        return self._partitions[partition_id]

    def rows(self) -> Iterator[Row]:
        """Yield the selected rows in order. Raises BadObject if they are not sorted by key."""
        if self._kept is not None and not self._kept:
            return
        previous: RowKey | None = None
        for row in self._read_rows():
            if previous is not None and row.key < previous:
                raise BadObject("profiles", -1, "rows are not ordered by labels and time", self._source.object_name)
            previous = row.key
            yield row

    def _reached_stacks(self) -> dict[int, set[int]]:
        reached: dict[int, set[int]] = {}
        for row in self._read_rows():
            reached.setdefault(row.partition, set()).update(row.stack_ids)
        return reached

    def _read_rows(self) -> Iterator[Row]:
        with naming(self._source.object_name):
            for batch in self._open_profiles().batches():
                self._stop_if_cancelled()
                yield from self._batch_rows(batch)

    def _open_profiles(self) -> ProfileTableReader:
        offset, size = self._source.section_bounds(PROFILES)
        if size <= STREAMED_PROFILES_BYTES:
            return ProfileTableReader(self._source.read(offset, size))
        return ProfileTableReader(SectionFile(self._source.read, offset, size))

    def _batch_rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        ids = batch.column("ID").storage.to_pylist()
        times = batch.column("TimeNanos").cast(pa.int64()).to_pylist()
        numbers = batch.column("SeriesIndex").to_pylist()
        partitions = batch.column("StacktracePartition").to_pylist()
        samples = batch.column(SAMPLES)
        offsets, stack_ids = samples.offsets.to_pylist(), samples.values.field(0)
        for position, number in enumerate(numbers):
            if self._kept is not None and number not in self._kept:
                continue
            if number not in self._series:
                raise BadReference("profiles", -1, f"a row has series {number}, which is not in the series index")
            series = self._series[number]
            start, end = offsets[position], offsets[position + 1]
            yield Row(
                key=(series.labels, series.fingerprint, times[position]),
                id=ids[position],
                source=self._number,
                partition=partitions[position],
                stack_ids=stack_ids.slice(start, end - start).to_pylist(),
                batch=batch,
                position=position,
            )

    def _stop_if_cancelled(self) -> None:
        if self._cancelled():
            raise MergeCancelled("the merge was cancelled")
