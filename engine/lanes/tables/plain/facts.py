"""Read and check the facts of a Parquet file that registration needs: rows, size, times, schema, order."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from engine.core.errors import BadObject, UnknownFormat
from engine.formats.parquet.footers import SECTION, Footer, open_parquet, read_footer
from engine.formats.parquet.store_file import open_object
from engine.formats.parquet.times import NoTimeType, time_bounds, to_milliseconds
from engine.lanes.tables.plain.foreign_formats import check_footer
from engine.storage import ObjectStore

BATCH_ROWS = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """The checked facts of a file's footer.

    ``min_time_ms`` and ``max_time_ms`` bound the time column (Unix ms, rounded down), None if it has no value.
    ``time_nulls`` counts rows without a time. ``sorted_by`` holds the columns by which the file is sorted ascending
    according to its footer, () if it states none. ``uncompressed_bytes`` is the size of its pages.
    """

    path: str
    size: int
    rows: int
    min_time_ms: int | None
    max_time_ms: int | None
    time_nulls: int
    schema: pa.Schema
    sorted_by: tuple[str, ...]
    row_groups: int
    uncompressed_bytes: int


def read_facts(
    store: ObjectStore, path: str, *, time_column: str, time_unit: str = "", size: int | None = None
) -> FileFacts:
    """Read and check the footer of a file; the time column is read only if its statistics are unusable.

    ``time_unit`` is the unit of an integer time column ("s", "ms", "us", "ns"). A known ``size`` saves a request.
    Raises a BadObject naming file, section and offset (a ForeignFile if another table format wrote it), StorageError.
    """
    footer = read_footer(store, path, size)
    check_footer(footer)
    kind = time_type(footer, time_column)
    try:
        to_milliseconds(kind, time_unit)
    except NoTimeType as error:
        raise UnknownFormat(f"column {time_column}", -1, str(error), path) from error
    times = _statistics_times(footer, time_column, time_unit) or _read_times(store, footer, time_column, time_unit)
    return FileFacts(
        path=path,
        size=footer.size,
        rows=footer.rows,
        min_time_ms=times.low,
        max_time_ms=times.high,
        time_nulls=times.nulls,
        schema=footer.schema,
        sorted_by=footer.sorted_by,
        row_groups=len(footer.groups),
        uncompressed_bytes=footer.uncompressed_bytes,
    )


def time_type(footer: Footer, time_column: str) -> pa.DataType:
    """Return the type of the time column. Raises UnknownFormat if the file has no column of this name."""
    if time_column not in footer.schema.names:
        reason = f"there is no time column {time_column!r}; there are {', '.join(footer.schema.names[:20])}"
        raise UnknownFormat(SECTION, -1, reason, footer.path)
    return footer.schema.field(time_column).type


@dataclass(slots=True)
class _Times:
    low: int | None = None
    high: int | None = None
    nulls: int = 0

    def include(self, low: int, high: int) -> None:
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)


def _statistics_times(footer: Footer, column: str, unit: str) -> _Times | None:
    """Return the times of the statistics, None unless they are complete for every row group."""
    in_ms = to_milliseconds(kind := footer.schema.field(column).type, unit)
    if pa.types.is_unsigned_integer(kind):
        return None
    times = _Times()
    for number, group in enumerate(footer.groups):
        pages = next(pages for pages in group.columns if pages.path == column)
        stats = pages.statistics
        if stats.nulls is None or stats.nulls > group.rows:
            return None
        times.nulls += stats.nulls
        if stats.nulls == group.rows:
            continue
        if stats.low is None or stats.high is None or not len(stats.low) == len(stats.high) in (4, 8):
            return None
        low, high = (int.from_bytes(raw, "little", signed=True) for raw in (stats.low, stats.high))
        if low > high:
            where = f"row group {number}, column {column}"
            raise BadObject(where, footer.start, f"its statistics state a range from {low} to {high}", footer.path)
        times.include(in_ms(low), in_ms(high))
    return times


def _read_times(store: ObjectStore, footer: Footer, column: str, unit: str) -> _Times:
    """Return the bounds of the values themselves."""
    times, rows = _Times(), 0
    try:
        file = open_parquet(open_object(store, footer.path, footer.size))
        for batch in file.iter_batches(BATCH_ROWS, columns=[column], use_threads=False):
            array = batch.column(0)
            rows += len(array)
            times.nulls += array.null_count
            if bounds := time_bounds(array, unit):
                times.include(*bounds)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise BadObject(f"column {column}", -1, f"it cannot be read ({type(error).__name__})", footer.path) from error
    if rows != footer.rows:
        raise BadObject(f"column {column}", -1, f"it has {rows} of {footer.rows} rows", footer.path)
    return times
