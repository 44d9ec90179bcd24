"""Encode the rows of one dataset as a profile table and a series index."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.formats.pprof.pprof_model import Bytes, Ids, Integers
from engine.formats.profile_block.model import IndexedSeries, Label, Labels
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableWriter
from engine.ingest.segments.label_memory import remembered
from engine.ingest.segments.split import fingerprint

StoredLabels = tuple[tuple[bytes, bytes], ...]
Numbers = NDArray[np.uint32]
Starts = NDArray[np.int32]
Mask = NDArray[np.bool_]

PARTITION = 0
"""ID of the only symbol partition of a segment's dataset."""
_SAMPLE = SCHEMA.field("Samples").type.value_type
_SAMPLE_LABELS = _SAMPLE.field("Labels").type
_ANNOTATIONS = SCHEMA.field("Annotations").type


class RowColumns(NamedTuple):
    """The rows in table order; a ragged column has ``starts`` with one entry more than there are rows.

    ``ids`` and ``traces`` have 16 bytes per entry. ``annotations`` is empty if no row has any.
    """

    ids: Bytes
    series: Numbers
    times_ns: Integers
    totals: Ids
    drop_frames: Integers
    keep_frames: Integers
    durations_ns: Integers
    default_sample_types: Integers
    comment_starts: Starts
    comments: Integers
    annotations: Sequence[Sequence[Label]]
    sample_starts: Starts
    stack_ids: Ids
    values: Integers
    spans: Ids
    without_span: Mask
    traces: Bytes
    without_trace: Mask


@remembered
def stored_labels(labels: Labels) -> StoredLabels:
    """Return labels as the series index stores them."""
    return tuple((name.encode(), value.encode()) for name, value in labels)


def ordered_rows(
    labels: Sequence[StoredLabels], series: Numbers, times_ns: Integers
) -> tuple[list[StoredLabels], Integers, Numbers]:
    """Return the sorted labels, the row numbers sorted by labels, time and arrival, and the series number of each row.

    ``series`` has for every row the position of its labels; the returned numbers are positions in the sorted labels.
    """
    order = sorted(range(len(labels)), key=labels.__getitem__)
    ranks = np.zeros(len(labels), np.uint32)
    ranks[order] = np.arange(len(labels), dtype=np.uint32)
    rows = np.lexsort((times_ns, ranks[series]))
    return [labels[position] for position in order], rows.astype(np.int64), ranks[series][rows]


def indexed_series(labels: Sequence[StoredLabels], series: Numbers, times_ns: Integers) -> list[IndexedSeries]:
    """Return the series of sorted rows; each has at least one row."""
    starts = np.searchsorted(series, np.arange(len(labels) + 1, dtype=np.uint32))
    first, last = times_ns[starts[:-1]].tolist(), times_ns[starts[1:] - 1].tolist()
    return [
        IndexedSeries(fingerprint(one), one, first[position], last[position], position)
        for position, one in enumerate(labels)
    ]


def encoded_table(rows: RowColumns) -> bytes:
    """Return the profile table of these rows, one row group."""
    table = io.BytesIO()
    writer = ProfileTableWriter(table)
    writer.write(_batch(rows))
    writer.close()
    return table.getvalue()


def _batch(rows: RowColumns) -> pa.RecordBatch:
    count = len(rows.series)
    columns: dict[str, pa.Array] = {
        "ID": pa.ExtensionArray.from_storage(pa.uuid(), _sixteen_bytes(rows.ids, count)),
        "SeriesIndex": pa.array(rows.series),
        "StacktracePartition": pa.array(np.full(count, PARTITION, np.uint64)),
        "TotalValue": pa.array(rows.totals),
        "Samples": _samples(rows),
        "DropFrames": _or_null(rows.drop_frames),
        "KeepFrames": _or_null(rows.keep_frames),
        "TimeNanos": pa.array(rows.times_ns).cast(SCHEMA.field("TimeNanos").type),
        "DurationNanos": _or_null(rows.durations_ns),
        "Period": pa.nulls(count, pa.int64()),
        "Comments": _list_of(rows.comment_starts, pa.array(rows.comments), SCHEMA.field("Comments").type),
        "DefaultSampleType": _or_null(rows.default_sample_types),
        "Annotations": pa.array(
            [[{"Key": key, "Value": value} for key, value in own] for own in rows.annotations or [()] * count],
            _ANNOTATIONS,
        ),
    }
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _samples(rows: RowColumns) -> pa.ListArray:
    total = len(rows.values)
    no_labels = pa.array([], _SAMPLE_LABELS.value_type)
    children = [
        pa.array(rows.stack_ids),
        pa.array(rows.values),
        _list_of(np.zeros(total + 1, np.int32), no_labels, _SAMPLE_LABELS),
        pa.array(rows.spans, mask=rows.without_span),
        _sixteen_bytes(rows.traces, total, rows.without_trace),
    ]
    samples = pa.StructArray.from_arrays(children, fields=list(_SAMPLE))
    return _list_of(rows.sample_starts, samples, SCHEMA.field("Samples").type)


def _list_of(starts: Starts, items: pa.Array, kind: pa.DataType) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(starts), items, type=kind)


def _sixteen_bytes(data: Bytes, count: int, absent: Mask | None = None) -> pa.Array:
    if absent is not None and absent.all():
        return pa.nulls(count, pa.binary(16))
    valid = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [valid, pa.py_buffer(data.tobytes())])


def _or_null(values: Integers) -> pa.Array:
    """Return a nullable column with null for 0."""
    return pa.array(values, mask=values == 0)
