"""The pure Python dataset merge: the reference for the compiled one.

It follows the rules in ``engine.formats.profile_block.merge_model`` line by line: a stable k-way merge of the sources'
rows, series numbered in order of appearance, stack ids replaced in place, all other columns copied.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from engine.formats.profile_block.merge_model import (
    ROW_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    SAMPLE_BYTES,
    DatasetSource,
    MergedDataset,
    Scratch,
    SectionSink,
    Selection,
)
from engine.formats.profile_block.model import IndexedSeries
from engine.formats.profile_block.series._series_index_py import encode_series_index
from engine.formats.profile_block.symbols._symbol_merge_py import OutputPartition, PartitionTranslation
from engine.formats.profile_block.symbols._symbols_py import encode_symbols
from engine.formats.profile_block.table.profile_table import SAMPLES, SCHEMA, ProfileTableWriter
from engine.lanes.profiles.merge._source_rows_py import Row, RowKey, SourceRows, naming


def merge_rows(
    sources: Sequence[DatasetSource],
    *,
    selection: Selection = None,
    scratch: Scratch,
    cancelled: Callable[[], bool],
) -> MergedDataset:
    """Merge the sources' datasets; with a selection, only the selected series.

    Raises BadObject with the damaged source, or MergeCancelled; scratch files are removed then.
    """
    sink = scratch.sink()
    writer = ProfileTableWriter(sink)
    try:
        return _Merge(sources, selection, cancelled, sink, writer).run(scratch)
    except BaseException:
        writer.close()
        sink.discard()
        raise


class _Piece(NamedTuple):
    """A row of the output: the position of its columns, and its new series number and stack ids."""

    batch: pa.RecordBatch
    position: int
    series: int
    stack_ids: list[int]


class _Merge:
    def __init__(
        self,
        sources: Sequence[DatasetSource],
        selection: Selection,
        cancelled: Callable[[], bool],
        sink: SectionSink,
        writer: ProfileTableWriter,
    ) -> None:
        self._sources = sources
        self._readers = [
            SourceRows(number, source, None if selection is None else selection[number], cancelled)
            for number, source in enumerate(sources)
        ]
        self._sink = sink
        self._writer = writer
        self._outputs: dict[int, OutputPartition] = {}
        self._translations: dict[tuple[int, int], PartitionTranslation] = {}
        self._series: list[IndexedSeries] = []
        self._group: list[_Piece] = []
        self._group_bytes = 0
        self._rows_read = self._row_count = self._sample_count = 0

    def run(self, scratch: Scratch) -> MergedDataset:
        for reader in self._readers:
            reader.load()
        for row in self._kept_rows():
            self._emit(row)
        self._flush()
        self._writer.close()
        symbols = encode_symbols([output.finish() for output in self._outputs.values()])
        return MergedDataset(
            sections=(
                self._sink.finish(),
                scratch.section(encode_series_index(self._series)),
                scratch.section(symbols),
            ),
            series=tuple(self._series),
            row_count=self._row_count,
            rows_read=self._rows_read,
            rows_dropped=self._rows_read - self._row_count,
            sample_count=self._sample_count,
            min_time_ns=min((entry.min_time_ns for entry in self._series), default=0),
            max_time_ns=max((entry.max_time_ns for entry in self._series), default=0),
            bytes_read=sum(source.size for source in self._sources),
        )

    def _kept_rows(self) -> Iterator[Row]:
        """Yield the merged rows without duplicate IDs among rows of equal key."""
        key: RowKey | None = None
        ids: set[bytes] = set()
        for row in heapq.merge(*(reader.rows() for reader in self._readers), key=lambda row: row.key):
            self._rows_read += 1
            if row.key != key:
                key, ids = row.key, set()
            if row.id not in ids or len(self._sources) == 1:
                ids.add(row.id)
                yield row

    def _emit(self, row: Row) -> None:
        labels, fingerprint, time_ns = row.key
        last = self._series[-1] if self._series else None
        if last is None or (last.labels, last.fingerprint) != (labels, fingerprint):
            self._series.append(IndexedSeries(fingerprint, labels, time_ns, time_ns, len(self._series)))
        else:
            self._series[-1] = last._replace(max_time_ns=time_ns)
        with naming(self._sources[row.source].object_name):
            stack_ids = self._translation(row).translate(row.stack_ids)
        if len(self._group) == ROW_GROUP_ROWS:
            self._flush()
        self._group.append(_Piece(row.batch, row.position, len(self._series) - 1, stack_ids))
        self._group_bytes += ROW_BYTES + SAMPLE_BYTES * len(stack_ids)
        self._row_count += 1
        self._sample_count += len(stack_ids)
        if self._group_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _translation(self, row: Row) -> PartitionTranslation:
        place = (row.source, row.partition)
        if place not in self._translations:
            source = self._readers[row.source].partition(row.partition)
            output = self._outputs.setdefault(row.partition, OutputPartition(row.partition))
            self._translations[place] = PartitionTranslation(source, output)
        return self._translations[place]

    def _flush(self) -> None:
        if self._group:
            self._writer.write(_group_batch(self._group))
        self._group, self._group_bytes = [], 0


def _group_batch(pieces: Sequence[_Piece]) -> pa.RecordBatch:
    """Return the rows of the pieces as one batch, series numbers and stack ids replaced."""
    copied = pa.concat_batches(list(_slices(pieces)))
    columns = {name: copied.column(name) for name in copied.schema.names}
    columns["SeriesIndex"] = pa.array([piece.series for piece in pieces], pa.uint32())
    samples = copied.column(SAMPLES)
    fields = list(samples.type.value_type)
    values = samples.flatten()
    stack_ids = pa.array([stack_id for piece in pieces for stack_id in piece.stack_ids], pa.uint64())
    replaced = pa.StructArray.from_arrays([stack_ids, *values.flatten()[1:]], fields=fields)
    offsets = pa.array(_running_sums(len(piece.stack_ids) for piece in pieces), pa.int32())
    columns["Samples"] = pa.ListArray.from_arrays(offsets, replaced, type=samples.type)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


def _slices(pieces: Sequence[_Piece]) -> Iterator[pa.RecordBatch]:
    """Yield slices of consecutive rows of one batch."""
    start = 0
    for end in range(1, len(pieces) + 1):
        previous = pieces[end - 1]
        if end == len(pieces) or not _follows(pieces[end], previous):
            yield previous.batch.slice(pieces[start].position, end - start)
            start = end


def _follows(piece: _Piece, previous: _Piece) -> bool:
    return piece.batch is previous.batch and piece.position == previous.position + 1


def _running_sums(counts: Iterator[int]) -> list[int]:
    sums = [0]
    for count in counts:
        sums.append(sums[-1] + count)
    return sums
