"""Pure Python builder of one dataset of a segment: the rows, series and symbols of a tenant's service."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.formats.pprof.pprof_model import Integers
from engine.formats.profile_block.model import IndexedSeries, Label, Labels
from engine.formats.profile_block.series.series_index import encode_series_index
from engine.formats.profile_block.symbols.symbols import encode_symbols
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableWriter
from engine.ingest.segments.interning import SymbolInterner
from engine.ingest.segments.segment_table import PARTITION, StoredLabels, stored_labels
from engine.ingest.segments.split import LabelGroup, fingerprint, series_labels

_SAMPLE = SCHEMA.field("Samples").type.value_type
_SAMPLE_LABELS = _SAMPLE.field("Labels").type
_ANNOTATIONS = SCHEMA.field("Annotations").type


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """One profile and sample type, as a row of the profile table. ``span_ids`` is None if spans are unknown."""

    labels: StoredLabels
    profile_id: bytes
    time_ns: int
    stack_ids: Integers
    values: Integers
    span_ids: NDArray[np.uint64] | None
    trace_ids: list[bytes | None]
    drop_frames: int
    keep_frames: int
    duration_ns: int
    comments: Sequence[int]
    default_sample_type: int
    annotations: Sequence[Label]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltDataset:
    """The three sections of a built dataset, its series in order, and its metadata."""

    sections: tuple[bytes, bytes, bytes]
    series: tuple[IndexedSeries, ...]
    labels: tuple[Labels, ...]
    min_time_ns: int
    max_time_ns: int


class DatasetBuilder:
    """Collects rows; rows of a series keep their arrival order where their times are equal."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._symbols = SymbolInterner()
        self._rows: list[ProfileRow] = []
        self._profile_types: set[str] = set()

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add(self, group: LabelGroup, profile_id: bytes, annotations: Sequence[Label]) -> int:
        """Add a row for every sample type of the group that has values; return the number of samples in them."""
        profile = group.profile
        stack_ids = self._symbols.intern(profile)
        values = profile.samples.values.reshape(-1, len(profile.sample_types))
        spans = None if group.span_ids is None else np.array(group.span_ids, np.uint64)
        before = len(self._rows)
        for sample_type in range(len(profile.sample_types)):
            present = np.flatnonzero(values[:, sample_type] > 0)
            if not len(present):
                continue
            order = present[np.argsort(stack_ids[present], kind="stable")]
            labels = series_labels(group.labels, profile, sample_type)
            self._profile_types.add(dict(labels)["__profile_type__"])
            self._rows.append(
                ProfileRow(
                    labels=stored_labels(labels),
                    profile_id=profile_id,
                    time_ns=profile.time_ns,
                    stack_ids=stack_ids[order],
                    values=values[order, sample_type],
                    span_ids=None if spans is None else spans[order],
                    trace_ids=[group.trace_ids[i] for i in order.tolist()],
                    drop_frames=profile.drop_frames,
                    keep_frames=profile.keep_frames,
                    duration_ns=profile.duration_ns,
                    comments=profile.comments,
                    default_sample_type=profile.default_sample_type,
                    annotations=annotations,
                )
            )
        return sum(len(row.values) for row in self._rows[before:])

    def build(self) -> BuiltDataset:
        """Return the built dataset; it must have rows."""
        rows = sorted(self._rows, key=lambda row: (row.labels, row.time_ns))
        series, numbers = _series(rows)
        table = io.BytesIO()
        writer = ProfileTableWriter(table)
        writer.write(_batch(rows, numbers))
        writer.close()
        symbols = encode_symbols([self._symbols.partition()])
        return BuiltDataset(
            sections=(table.getvalue(), encode_series_index(series), symbols),
            series=tuple(series),
            labels=tuple(dataset_labels(self._service, self._profile_types, self._symbols.is_symbolized)),
            min_time_ns=min(entry.min_time_ns for entry in series),
            max_time_ns=max(entry.max_time_ns for entry in series),
        )


def dataset_labels(service: str, profile_types: Iterable[str], is_symbolized: bool) -> Iterator[Labels]:
    """Yield the label sets by which a query finds a dataset."""
    own = ("service_name", service)
    for profile_type in sorted(profile_types, key=str.encode):
        yield own, ("__profile_type__", profile_type)
    if not is_symbolized:
        yield own, ("__unsymbolized__", "true")


def _series(rows: Iterable[ProfileRow]) -> tuple[list[IndexedSeries], list[int]]:
    """Return the series of sorted rows, and each row's series number."""
    series: list[IndexedSeries] = []
    numbers = []
    for row in rows:
        if series and series[-1].labels == row.labels:
            series[-1] = series[-1]._replace(max_time_ns=row.time_ns)
        else:
            series.append(IndexedSeries(fingerprint(row.labels), row.labels, row.time_ns, row.time_ns, len(series)))
        numbers.append(len(series) - 1)
    return series, numbers


def _batch(rows: Sequence[ProfileRow], series_numbers: Sequence[int]) -> pa.RecordBatch:
    count = len(rows)
    times = pa.array([row.time_ns for row in rows], pa.int64())
    identities = pa.array([row.profile_id for row in rows], pa.binary(16))
    columns: dict[str, pa.Array] = {
        "ID": pa.ExtensionArray.from_storage(pa.uuid(), identities),
        "SeriesIndex": pa.array(series_numbers, pa.uint32()),
        "StacktracePartition": pa.array([PARTITION] * count, pa.uint64()),
        "TotalValue": pa.array([int(row.values.sum()) for row in rows], pa.uint64()),
        "Samples": _samples(rows),
        "DropFrames": _or_null([row.drop_frames for row in rows]),
        "KeepFrames": _or_null([row.keep_frames for row in rows]),
        "TimeNanos": times.cast(SCHEMA.field("TimeNanos").type),
        "DurationNanos": _or_null([row.duration_ns for row in rows]),
        "Period": pa.nulls(count, pa.int64()),
        "Comments": pa.array([list(row.comments) for row in rows], SCHEMA.field("Comments").type),
        "DefaultSampleType": _or_null([row.default_sample_type for row in rows]),
        "Annotations": pa.array(
            [[{"Key": key, "Value": value} for key, value in row.annotations] for row in rows], _ANNOTATIONS
        ),
    }
    return pa.RecordBatch.from_arrays([columns[field.name] for field in SCHEMA], schema=SCHEMA)


def _samples(rows: Sequence[ProfileRow]) -> pa.ListArray:
    counts = [len(row.values) for row in rows]
    total = sum(counts)
    spans = np.concatenate(
        [np.zeros(len(row.values), np.uint64) if row.span_ids is None else row.span_ids for row in rows]
    )
    without_spans = np.repeat(np.array([row.span_ids is None for row in rows]), counts)
    no_labels = pa.array([], _SAMPLE_LABELS.value_type)
    children = [
        pa.array(np.concatenate([row.stack_ids for row in rows]).astype(np.uint64)),
        pa.array(np.concatenate([row.values for row in rows])),
        pa.ListArray.from_arrays(pa.array(np.zeros(total + 1, np.int32)), no_labels, type=_SAMPLE_LABELS),
        pa.array(spans, mask=without_spans),
        pa.array([trace for row in rows for trace in row.trace_ids], pa.binary(16)),
    ]
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))).astype(np.int32)
    samples = pa.StructArray.from_arrays(children, fields=list(_SAMPLE))
    return pa.ListArray.from_arrays(pa.array(offsets), samples, type=SCHEMA.field("Samples").type)


def _or_null(values: Sequence[int]) -> pa.Array:
    """Return a nullable column with null for 0."""
    return pa.array([value or None for value in values], pa.int64())
