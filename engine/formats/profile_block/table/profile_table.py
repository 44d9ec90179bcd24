"""Reader and writer of the profile table: a Parquet file with one row per profile and sample type.

Rows are sorted by SeriesIndex, then TimeNanos. Batches always have ``SCHEMA``: columns that a file lacks (TraceID
before v1.20, Annotations in 2024) are null or empty. Different writers write equal contents with different bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.errors import BadObject, LimitExceeded, UnknownFormat
from engine.formats.profile_block.merge_model import READ_BATCH_BYTES, ROW_BYTES, SAMPLE_BYTES
from engine.formats.profile_block.table.table_footer import MAGIC, TAIL_BYTES, check_table_footer

_SECTION = "profiles"
VALUES_PER_BYTE_MAX = 128
"""Maximum number of values per byte of a column; the encodings of known writers have up to about 50."""
ROW_GROUPS_MAX = 1 << 16
STACK_IDS_BATCH_ROWS = 256

_STACK_IDS = ("SeriesIndex", "StacktracePartition", "Samples.list.element.StacktraceID")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list(element: pa.DataType) -> pa.DataType:
    return pa.list_(_required("element", element))


_SAMPLE_LABEL = pa.struct(
    [
        _required("Key", pa.int64()),
        pa.field("Str", pa.int64()),
        pa.field("Num", pa.int64()),
        pa.field("NumUnit", pa.int64()),
    ]
)
_SAMPLE = pa.struct(
    [
        _required("StacktraceID", pa.uint64()),
        _required("Value", pa.int64()),
        _required("Labels", _list(_SAMPLE_LABEL)),
        pa.field("SpanID", pa.uint64()),
        pa.field("TraceID", pa.binary(16)),
    ]
)
_ANNOTATION = pa.struct([_required("Key", pa.string()), _required("Value", pa.string())])

SCHEMA = pa.schema(
    [
        _required("ID", pa.uuid()),
        _required("SeriesIndex", pa.uint32()),
        _required("StacktracePartition", pa.uint64()),
        _required("TotalValue", pa.uint64()),
        _required("Samples", _list(_SAMPLE)),
        pa.field("DropFrames", pa.int64()),
        pa.field("KeepFrames", pa.int64()),
        _required("TimeNanos", pa.timestamp("ns", tz="UTC")),
        pa.field("DurationNanos", pa.int64()),
        pa.field("Period", pa.int64()),
        _required("Comments", _list(pa.int64())),
        pa.field("DefaultSampleType", pa.int64()),
        _required("Annotations", _list(_ANNOTATION)),
    ]
)
SAMPLES = SCHEMA.get_field_index("Samples")

_PLAIN = ("ID", "TimeNanos", "DurationNanos", "Period", "DefaultSampleType")
_DELTA = (
    "SeriesIndex",
    "StacktracePartition",
    "TotalValue",
    "Samples.list.element.StacktraceID",
    "Samples.list.element.Value",
    *(f"Samples.list.element.Labels.list.element.{name}" for name in ("Key", "Str", "Num", "NumUnit")),
    "DropFrames",
    "KeepFrames",
    "Comments.list.element",
)
_TEXT = ("Annotations.list.element.Key", "Annotations.list.element.Value")
_WRITER_OPTIONS: dict[str, Any] = {
    "version": "2.6",
    "data_page_version": "2.0",
    "compression": "NONE",
    "use_dictionary": ["Samples.list.element.SpanID", "Samples.list.element.TraceID"],
    "column_encoding": {
        **dict.fromkeys(_PLAIN, "PLAIN"),
        **dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
        **dict.fromkeys(_TEXT, "DELTA_LENGTH_BYTE_ARRAY"),
    },
    "write_page_index": True,
    "write_page_checksum": True,
    "store_schema": False,
}


class StackIds(NamedTuple):
    """Series numbers, partitions and stack ids of rows; row i has the ids ``offsets[i]`` up to ``offsets[i+1]``."""

    series: npt.NDArray[np.uint32]
    partitions: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int32]
    stack_ids: npt.NDArray[np.uint64]


class SectionFile:
    """A section as a read-only file over range requests; ``hold`` reads a range once and serves reads from it."""

    def __init__(self, read: Callable[[int, int], bytes], offset: int, size: int) -> None:
        self._read = read
        self._offset = offset
        self._size = size
        self._position = 0
        self._held = b""
        self._held_from = 0
        self.closed = False

    def hold(self, start: int, end: int) -> None:
        """Read bytes ``start`` to ``end`` of the section, in place of the range held before."""
        self._held = b""
        self._held = self._read(self._offset + start, end - start)
        self._held_from = start

    @property
    def size(self) -> int:
        """Size of the section in bytes."""
        return self._size

    def read_at(self, start: int, length: int) -> bytes:
        """Return a range of the section, independent of the held range and the position."""
        return self._read(self._offset + start, length)

    def read(self, size: int = -1, /) -> bytes:
        start = self._position
        end = self._size if size < 0 else min(start + size, self._size)
        self._position = max(start, end)
        if end <= start:
            return b""
        held_at = start - self._held_from
        if held_at >= 0 and end - self._held_from <= len(self._held):
            return self._held[held_at : end - self._held_from]
        return self._read(self._offset + start, end - start)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        """Do nothing: the file is read-only."""

    def close(self) -> None:
        """Release the held range."""
        self._held = b""
        self.closed = True


@contextmanager
def _bad_object_on_arrow_errors() -> Iterator[None]:
    # pyarrow raises any of these for damaged files.
    try:
        yield
    except (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError) as error:
        raise BadObject(_SECTION, -1, f"not a readable profile table: {error}") from error


class ProfileTableReader:
    """Reads a profile table (bytes or a ``SectionFile``) in bounded batches.

    ``footer`` may be that of an earlier reader of the same table, which saves reading it again. Use
    ``reads_ahead=False`` if the needed ranges are read with ``SectionFile.hold``: pyarrow would read more.
    """

    def __init__(
        self,
        source: bytes | memoryview | SectionFile,
        *,
        footer: pq.FileMetaData | None = None,
        reads_ahead: bool = True,
    ) -> None:
        self._section = source if isinstance(source, SectionFile) else None
        if footer is None:
            _check_footer(source)
            footer = _own_footer(self._section) if self._section else None
        with _bad_object_on_arrow_errors():
            opened = pa.PythonFile(source, mode="r") if self._section else pa.BufferReader(source)
            self._file = pq.ParquetFile(
                opened, metadata=footer, page_checksum_verification=True, pre_buffer=reads_ahead
            )
            metadata = self._file.metadata
            self._groups = [metadata.row_group(i) for i in range(min(metadata.num_row_groups, ROW_GROUPS_MAX + 1))]
        if len(self._groups) > ROW_GROUPS_MAX:
            raise LimitExceeded(_SECTION, -1, f"{metadata.num_row_groups} row groups exceed {ROW_GROUPS_MAX}")
        self._size = self._section.size if self._section else None
        self._paths = self._check_columns()
        self._sizes = [self._check_group(group) for group in self._groups]

    @property
    def row_count(self) -> int:
        """The number of rows by the footer."""
        return sum(rows for rows, _ in self._sizes)

    @property
    def sample_count(self) -> int:
        """The number of samples by the footer; a row without samples counts as one."""
        return sum(samples for _, samples in self._sizes)

    @property
    def footer(self) -> pq.FileMetaData:
        """The footer, for other readers of the same table."""
        return self._file.metadata

    @property
    def group_sizes(self) -> list[tuple[int, int]]:
        """The numbers of rows and samples of each row group by the footer."""
        return self._sizes

    def bounds(self, number: int, path: str) -> tuple[int, int] | None:
        """Return the minimum and maximum of an integer column in a row group, None without statistics."""
        statistics = self._groups[number].column(self._paths[path]).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        return int(statistics.min_raw), int(statistics.max_raw)

    def column_ranges(self, number: int, paths: Sequence[str]) -> list[tuple[int, int]]:
        """Return the sorted byte ranges (start, end) of these columns of a row group, without absent columns."""
        found = []
        for path in paths:
            if path in self._paths:
                column = self._groups[number].column(self._paths[path])
                start = column.dictionary_page_offset or column.data_page_offset
                found.append((start, start + column.total_compressed_size))
                if (
                    start < 0
                    or column.total_compressed_size < 0
                    or (self._size is not None and found[-1][1] > self._size)
                ):
                    raise BadObject(_SECTION, -1, f"row group {number} is outside of the section")
        return sorted(found)

    def columns(self, number: int, paths: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield these columns of a row group in their stored types, ``batch_rows`` at a time, without absent ones."""
        rows_read = 0
        present = [path for path in paths if path in self._paths]
        with _bad_object_on_arrow_errors():
            for batch in self._file.iter_batches(batch_rows, [number], columns=present, use_threads=False):
                rows_read += batch.num_rows
                yield batch
        if rows_read != self._sizes[number][0]:
            raise BadObject(_SECTION, -1, f"row group {number} has {rows_read} rows, expected {self._sizes[number][0]}")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows in order, in batches in SCHEMA of about READ_BATCH_BYTES decoded bytes, at least one row.

        Raises BadObject if the file is damaged or the values of a row do not sum to its TotalValue.
        """
        for number, (rows, samples) in enumerate(self._sizes):
            decoded = rows * ROW_BYTES + samples * SAMPLE_BYTES
            batch_rows = max(1, rows * READ_BATCH_BYTES // max(decoded, READ_BATCH_BYTES))
            yield from self._group_batches(number, batch_rows)

    def stack_ids(self) -> Iterator[StackIds]:
        """Yield the stack ids of all rows with series and partition; TotalValue is not verified."""
        with _bad_object_on_arrow_errors():
            for batch in self._file.iter_batches(STACK_IDS_BATCH_ROWS, columns=list(_STACK_IDS), use_threads=False):
                samples = batch.column("Samples")
                yield StackIds(
                    series=batch.column("SeriesIndex").to_numpy(),
                    partitions=batch.column("StacktracePartition").to_numpy(),
                    offsets=samples.offsets.to_numpy(),
                    stack_ids=samples.values.field(0).to_numpy(),
                )

    def _group_batches(self, number: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        if self._section:
            self._section.hold(*self._extent(number))
        rows_read = 0
        with _bad_object_on_arrow_errors():
            for batch in self._file.iter_batches(batch_rows, [number], use_threads=False):
                rows_read += batch.num_rows
                yield _checked(_conformed(batch))
        if rows_read != self._sizes[number][0]:
            raise BadObject(_SECTION, -1, f"row group {number} has {rows_read} rows, expected {self._sizes[number][0]}")

    def _check_columns(self) -> dict[str, int]:
        """Return the position of every column. Raises UnknownFormat if a required one is missing."""
        schema = self._file.schema
        paths = {schema.column(i).path: i for i in range(len(schema))}
        required = ("ID", "SeriesIndex", "StacktracePartition", "TotalValue", "TimeNanos")
        for path in (*required, "Samples.list.element.StacktraceID", "Samples.list.element.Value"):
            if path not in paths:
                raise UnknownFormat(_SECTION, -1, f"the column {path} is missing")
        return paths

    def _check_group(self, group: pq.RowGroupMetaData) -> tuple[int, int]:
        """Return (rows, samples) of a row group. Raises LimitExceeded if they do not fit in its bytes."""
        column = group.column(self._paths["Samples.list.element.StacktraceID"])
        samples, size = column.num_values, column.total_compressed_size
        if column.compression != "UNCOMPRESSED":
            raise UnknownFormat(_SECTION, -1, f"columns are compressed with {column.compression}, expected none")
        if not 0 <= group.num_rows <= samples <= VALUES_PER_BYTE_MAX * max(size, 1):
            raise LimitExceeded(_SECTION, -1, f"{group.num_rows} rows and {samples} samples do not fit in {size} bytes")
        return group.num_rows, samples

    def _extent(self, number: int) -> tuple[int, int]:
        """Return the start and end of the pages of a row group in the section."""
        columns = [self._groups[number].column(i) for i in range(self._groups[number].num_columns)]
        starts = [c.dictionary_page_offset or c.data_page_offset for c in columns]
        end = max(start + c.total_compressed_size for start, c in zip(starts, columns, strict=True))
        if min(starts) < 0 or end < min(starts) or self._section is None or end > self._section.seek(0, 2):
            raise BadObject(_SECTION, -1, f"row group {number} is outside of the section")
        return min(starts), end


def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.equals(SCHEMA):
        return batch
    names = batch.schema.names
    arrays = [
        _conform(batch.column(names.index(field.name)) if field.name in names else None, field, batch.num_rows)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _conform(array: pa.Array | None, field: pa.Field, length: int) -> pa.Array:
    """Return an array with the type of the field; a missing one has nulls or empty lists."""
    kind = field.type
    if array is None:
        return _missing(field, length)
    if not field.nullable and array.null_count:
        raise BadObject(_SECTION, -1, f"column {field.name} has nulls")
    if array.type.equals(kind):
        return array
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = _conform(array.values, kind.value_field, len(array.values))
        return pa.ListArray.from_arrays(array.offsets, values, type=kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        present = {array.type.field(i).name: array.field(i) for i in range(array.type.num_fields)}
        children = [_conform(present.get(child.name), child, len(array)) for child in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if kind == pa.uuid() and array.type.equals(pa.binary(16)):
        return pa.ExtensionArray.from_storage(kind, array)
    raise UnknownFormat(_SECTION, -1, f"column {field.name} is {array.type}, expected {kind}")


def _missing(field: pa.Field, length: int) -> pa.Array:
    if field.nullable:
        return pa.nulls(length, field.type)
    if not pa.types.is_list(field.type):
        raise UnknownFormat(_SECTION, -1, f"the column {field.name} is missing")
    empty = pa.array([], field.type.value_type)
    return pa.ListArray.from_arrays(pa.array([0] * (length + 1), pa.int32()), empty, type=field.type)


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Verify TotalValue against the samples, which detects damage in pages without a checksum (of other writers)."""
    samples = batch.column(SAMPLES)
    offsets = samples.offsets.to_numpy()
    values = samples.values.field(1).to_numpy().view(np.uint64)
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    totals = sums[offsets[1:]] - sums[offsets[:-1]]
    wrong = np.flatnonzero(totals != batch.column(3).to_numpy())
    if len(wrong):
        raise BadObject(_SECTION, -1, f"the values of row {wrong[0]} of a batch do not sum to its TotalValue")
    return batch


class ProfileTableWriter:
    """Writes a profile table to a file-like ``sink``, one row group per batch."""

    def __init__(self, sink: object) -> None:
        self._writer = pq.ParquetWriter(cast(Any, sink), SCHEMA, **_WRITER_OPTIONS)
        self.row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch in SCHEMA as one row group, unless it is empty."""
        if batch.num_rows:
            self._writer.write_batch(batch, row_group_size=batch.num_rows)
            self.row_count += batch.num_rows

    def close(self) -> None:
        """Write the footer; the sink stays open. Also required before discarding a table: pyarrow would do it later."""
        self._writer.close()


def _check_footer(source: bytes | memoryview | SectionFile) -> None:
    """Validate the footer before pyarrow reads it, because some damaged footers terminate the process."""
    if isinstance(source, SectionFile):
        check_table_footer(source.read_at, source.size)
    else:
        view = memoryview(source)
        check_table_footer(lambda offset, length: bytes(view[offset : offset + length]), len(view))


def _own_footer(section: SectionFile) -> pq.FileMetaData:
    """Return the footer of a validated table with exact reads; pyarrow alone would read the last 64 KiB."""
    tail = section.read_at(section.size - TAIL_BYTES, TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little") + TAIL_BYTES
    with _bad_object_on_arrow_errors():
        return pq.read_metadata(pa.BufferReader(MAGIC + section.read_at(section.size - length, length)))
