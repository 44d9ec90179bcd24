"""Small profile data made up for tests: rows and stacks in, sections, datasets and blocks out."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from engine.formats.profile_block.container.container import BlockWriter
from engine.formats.profile_block.container.metadata import encode_metadata
from engine.formats.profile_block.container.object_names import block_key
from engine.formats.profile_block.merge_model import DatasetSource, InlineSection
from engine.formats.profile_block.model import BlockMeta, Function, IndexedSeries, Location, Mapping, SymbolPartition
from engine.formats.profile_block.series.series_index import encode_series_index
from engine.formats.profile_block.symbols._symbol_merge_py import OutputPartition
from engine.formats.profile_block.symbols.symbols import encode_symbols
from engine.formats.profile_block.table.profile_table import SCHEMA, ProfileTableWriter
from engine.lanes.profiles.jobs import ProfileMergeSpec, SourceObject
from engine.storage import ObjectStore

CPU = "process_cpu:cpu:nanoseconds:cpu:nanoseconds"
HEAP = "memory:inuse_space:bytes:space:bytes"
TIME_NS = 1_739_264_694_822_565_000
TIME_MS = TIME_NS // 1_000_000
BLOCK_ID = "01JKT3DJRETWN25NKEFZNEP1V0"

SeriesLabels = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True)
class Sample:
    """A stack of function names, leaf first, and what it used."""

    stack: tuple[str, ...]
    value: int = 1
    span_id: int | None = None
    trace_id: bytes | None = None


@dataclass(frozen=True)
class ProfileRow:
    """A row before it has numbers; rows of one call are sorted by the factory."""

    labels: SeriesLabels
    samples: tuple[Sample, ...]
    time_ns: int = TIME_NS
    id: bytes = bytes(16)
    partition: int = 0
    annotations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sections:
    """The three sections of a dataset and the series in it."""

    profiles: bytes
    series_index: bytes
    symbols: bytes
    series: tuple[IndexedSeries, ...]

    def source(self, object_name: str = "source") -> DatasetSource:
        """Return the sections as a merge's source."""
        data = self.profiles + self.series_index + self.symbols
        second = len(self.profiles)
        starts = (0, second, second + len(self.series_index))

        def read(offset: int, length: int) -> bytes:
            assert offset + length <= len(data)
            return data[offset : offset + length]

        return DatasetSource(object_name=object_name, table_of_contents=starts, size=len(data), read=read)


def series_labels(profile_type: str = CPU, service: str = "api", **extra: str) -> SeriesLabels:
    """Return labels in stored order: profile type, service, the rest by name."""
    rest = {"service_name": service, "__type__": profile_type.split(":")[1], **extra}
    ordered = [("__profile_type__", profile_type), ("__service_name__", service), *sorted(rest.items())]
    return tuple((name.encode(), value.encode()) for name, value in ordered)


def fingerprint(labels: SeriesLabels) -> int:
    """Return the stored hash of a label list."""
    return int(xxhash.xxh64_intdigest(b"".join(part + b"\xff" for label in labels for part in label)))


def row(
    stack: Sequence[str] = ("main",), *, value: int = 1, id: int = 0, labels: Any = None, **fields: Any
) -> ProfileRow:
    """Return a row with one sample."""
    return ProfileRow(
        labels=labels or series_labels(), samples=(Sample(tuple(stack), value),), id=id.to_bytes(16, "big"), **fields
    )


def make_sections(rows: Iterable[ProfileRow]) -> Sections:
    """Lay rows out as a segment writer does: series by labels, rows by series and time, stacks interned as met."""
    in_order = sorted(rows, key=lambda row: (row.labels, row.time_ns))
    outputs: dict[int, _Interning] = {}
    series: list[IndexedSeries] = []
    columns: list[dict[str, Any]] = []
    for entry in in_order:
        if not series or series[-1].labels != entry.labels:
            position = len(series)
            series.append(IndexedSeries(fingerprint(entry.labels), entry.labels, entry.time_ns, 0, position))
        series[-1] = series[-1]._replace(max_time_ns=entry.time_ns)
        interning = outputs.setdefault(entry.partition, _Interning(entry.partition))
        stack_ids = [interning.stack(sample.stack) for sample in entry.samples]
        columns.append(table_row(entry, len(series) - 1, stack_ids))
    partitions = [interning.partition.finish() for interning in outputs.values()]
    return Sections(table([columns]), encode_series_index(series), encode_symbols(partitions), tuple(series))


def table_row(entry: ProfileRow, series: int, stack_ids: Sequence[int]) -> dict[str, Any]:
    """Return a row as the profile table has it."""
    samples = [
        {"StacktraceID": stack_id, "Value": sample.value, "Labels": [], "SpanID": sample.span_id, "TraceID": trace}
        for stack_id, sample in zip(stack_ids, entry.samples, strict=True)
        for trace in [sample.trace_id]
    ]
    return {
        "ID": entry.id,
        "SeriesIndex": series,
        "StacktracePartition": entry.partition,
        "TotalValue": sum(sample.value for sample in entry.samples),
        "Samples": samples,
        "TimeNanos": entry.time_ns,
        "DurationNanos": 10_000_000_000,
        "Comments": [],
        "Annotations": [{"Key": key, "Value": value} for key, value in entry.annotations],
    }


def table(row_groups: Iterable[Sequence[dict[str, Any]]]) -> bytes:
    """Write rows as a profile table, one row group per list."""
    out = io.BytesIO()
    writer = ProfileTableWriter(out)
    for rows in row_groups:
        writer.write(batch(rows))
    writer.close()
    return out.getvalue()


def batch(rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Return rows in SCHEMA; fields left out are null."""
    arrays = []
    for field in SCHEMA:
        values = [row.get(field.name) for row in rows]
        if field.name == "ID":
            arrays.append(pa.ExtensionArray.from_storage(field.type, pa.array(values, pa.binary(16))))
        elif field.name == "TimeNanos":
            arrays.append(pa.array(values, pa.int64()).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def wide_table(row_groups: Iterable[Sequence[npt.NDArray[np.int64]]], *, series: Sequence[int] = ()) -> bytes:
    """Write rows with very many samples: per row its values, all of stack 1. Row number is added to the time.

    ``series`` are the rows' series numbers, by default all 0.
    """
    out = io.BytesIO()
    writer = ProfileTableWriter(out)
    number = 0
    for values in row_groups:
        numbers = range(number, number + len(values))
        number += len(values)
        plain = [
            table_row(row(time_ns=TIME_NS + n, id=n), series[n] if series else 0, [1])
            | {"Samples": [], "TotalValue": sum(v)}
            for n, v in zip(numbers, map(np.ndarray.tolist, values), strict=True)
        ]
        writer.write(_with_samples(batch(plain), values))
    writer.close()
    return out.getvalue()


def _with_samples(plain: pa.RecordBatch, values: Sequence[npt.NDArray[np.int64]]) -> pa.RecordBatch:
    kind = SCHEMA.field("Samples").type
    flat = np.concatenate(values)
    columns = [
        pa.array(np.ones(len(flat), np.uint64)),
        pa.array(flat),
        pa.ListArray.from_arrays(
            pa.array(np.zeros(len(flat) + 1, np.int32)),
            pa.array([], kind.value_type.field(2).type.value_type),
            type=kind.value_type.field(2).type,
        ),
        pa.nulls(len(flat), pa.uint64()),
        pa.nulls(len(flat), pa.binary(16)),
    ]
    samples = pa.StructArray.from_arrays(columns, fields=list(kind.value_type))
    offsets = np.concatenate(([0], np.cumsum([len(row_values) for row_values in values]))).astype(np.int32)
    arrays = [
        pa.ListArray.from_arrays(pa.array(offsets), samples, type=kind) if field.name == "Samples" else plain.column(i)
        for i, field in enumerate(SCHEMA)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Interning:
    """Gives every function its mapping-1 location, and every stack its node."""

    def __init__(self, partition_id: int) -> None:
        self.partition = OutputPartition(partition_id)
        filename = self.partition.strings.add(b"/bin/program")
        build_id = self.partition.strings.add(b"build")
        self._mapping = self.partition.mappings.add(Mapping(filename, build_id, 8, 0, 0, 0))

    def stack(self, names: Sequence[str]) -> int:
        return self.partition.insert(tuple(self._location(name) for name in names))

    def _location(self, name: str) -> int:
        text = self.partition.strings.add(name.encode())
        file = self.partition.strings.add(b"program.go")
        function = self.partition.functions.add(Function(text, text, file, 1))
        return self.partition.locations.add(Location(self._mapping, 0, ((function, 10 + len(name)),)))


def symbol_partition(stacks: Iterable[Sequence[str]], partition_id: int = 0) -> SymbolPartition:
    """Return a partition that holds these stacks, leaf first."""
    interning = _Interning(partition_id)
    for stack in stacks:
        interning.stack(stack)
    return interning.partition.finish()


@dataclass(frozen=True)
class Dataset:
    """A dataset to be put into a block."""

    tenant: str
    name: str
    rows: tuple[ProfileRow, ...]


def write_block(
    store: ObjectStore,
    datasets: Sequence[Dataset],
    *,
    id: str = BLOCK_ID,
    shard: int = 7,
    level: int = 0,
    tenant: str = "",
) -> SourceObject:
    """Write a segment (or, with level and tenant, a compacted block) and return it as a merge's source."""
    key = block_key(shard, tenant, level, id)
    with store.open_writer(key) as target:
        writer = BlockWriter(target)
        for dataset in sorted(datasets, key=lambda dataset: (dataset.tenant, dataset.name)):
            add_to_block(writer, dataset, make_sections(dataset.rows))
        for name in sorted({dataset.tenant for dataset in datasets}):
            writer.add_dataset_index(name)
        meta = writer.finish(id=id, tenant=tenant, shard=shard, compaction_level=level, created_by="test")
    return source_object(key, meta)


def source_object(key: str, meta: BlockMeta) -> SourceObject:
    """Return a block as a merge's source."""
    return SourceObject(id=meta.id, key=key, size=meta.size, metadata=encode_metadata(meta))


def merge_spec(sources: Sequence[SourceObject], **fields: Any) -> ProfileMergeSpec:
    """Return a job over sources, by default of shard 7, level 0."""
    defaults: dict[str, Any] = {"job": "job", "tenant": "", "shard": 7, "level": 0}
    return ProfileMergeSpec(sources=tuple(sources), **{**defaults, **fields})


def add_to_block(writer: BlockWriter, dataset: Dataset, sections: Sections) -> None:
    """Append a dataset with these sections, and the label sets and times of its rows."""
    times = [entry.time_ns // 1_000_000 for entry in dataset.rows]
    types = sorted({dict(entry.labels)[b"__profile_type__"].decode() for entry in dataset.rows})
    writer.add_dataset(
        tenant=dataset.tenant,
        name=dataset.name,
        labels=[(("service_name", dataset.name), ("__profile_type__", kind)) for kind in types],
        min_time_ms=min(times),
        max_time_ms=max(times),
        sections=[InlineSection(data) for data in (sections.profiles, sections.series_index, sections.symbols)],
        series=sections.series,
    )
