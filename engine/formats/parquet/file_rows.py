"""Reader of the rows of Parquet files in bounded pieces, cast to a schema; errors name file and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.core.errors import BadObject, LimitExceeded, MergeCancelled
from engine.formats.parquet.array_parts import is_text_or_bytes
from engine.formats.parquet.footers import Footer, RowGroup, open_parquet
from engine.formats.parquet.schemas import cast_batch
from engine.formats.parquet.store_file import open_object
from engine.formats.parquet.times import milliseconds, time_bounds
from engine.storage import ObjectStore, StorageError

ROWS_MAX = 1 << 20
ROWS_MIN = 1 << 10
ROW_BYTES_MAX = 256 << 20
"""Maximum size of the decoded rows of one piece: a few encoded bytes can expand to any number of equal values."""
NESTED_BYTES_MAX = 1 << 30
"""The same for text in lists, under the assumption that each value is as large as all values together."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The interval of the rows to read (Unix milliseconds, the end exclusive).

    ``has_all`` is true if, by the statistics of the file, all rows are inside; a row outside is then a BadObject.
    """

    column: str
    unit: str
    start_ms: int
    end_ms: int
    has_all: bool = False


def rows_per_piece(footer: Footer, piece_bytes: int) -> int:
    """Return the number of rows with about ``piece_bytes`` in memory, which exceeds the size of their pages."""
    row_bytes = 2 * footer.uncompressed_bytes // max(footer.rows, 1) + 8 * max(len(footer.schema), 1)
    return min(max(piece_bytes // row_bytes, ROWS_MIN), ROWS_MAX)


def read_rows(
    store: ObjectStore,
    footer: Footer,
    schema: pa.Schema | None = None,
    *,
    cut: Cut | None = None,
    rows: int = ROWS_MAX,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[pa.Table]:
    """Yield the rows of a file in pieces of at most ``rows``, cast to ``schema`` (None: in the schema of the file).

    Raises BadObject, which names file, row group and column, SchemaConflict, MergeCancelled, StorageError.
    """
    file = _opened(store, footer)
    for number, group in enumerate(footer.groups):
        found = 0
        for batch in _batches(file, footer, number, group, rows):
            if cancelled():
                raise MergeCancelled(f"reading {footer.path} was cancelled")
            found += batch.num_rows
            table = _instants(pa.Table.from_batches([batch]), footer)
            if cut is not None:
                table = _checked(table, cut, footer.path) if cut.has_all else _cut(table, cut, footer.path)
            yield table if schema is None else cast_batch(table, schema, footer.path)
        if found != group.rows:
            reason = f"found {found} rows, expected {group.rows}"
            raise BadObject(f"row group {number}", footer.start, reason, footer.path)


def _opened(store: ObjectStore, footer: Footer) -> pq.ParquetFile:
    try:
        return open_parquet(open_object(store, footer.path, footer.size), dictionaries=_repeating(footer))
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise BadObject(
            "footer", footer.start, f"it cannot be read any more ({type(error).__name__})", footer.path
        ) from error


def _repeating(footer: Footer) -> list[str]:
    """Return the flat text columns to read as dictionaries, so that their expanded size is checked first."""
    flat = {field.name for field in footer.schema if is_text_or_bytes(field.type)}
    return sorted({pages.path for group in footer.groups for pages in group.columns if pages.repeats} & flat)


def _rows_at_once(group: RowGroup, footer: Footer, rows: int) -> int:
    """Return the number of rows to decode at once: fewer if text in lists may expand, whose size is unknown."""
    nested = [pages for pages in group.columns if pages.repeats and pages.path not in footer.schema.names]
    largest = max((pages.uncompressed_bytes for pages in nested), default=0)
    return max(min(rows, NESTED_BYTES_MAX // max(largest, 1)), 1)


def _expanded_bytes(batch: pa.RecordBatch) -> int:
    """Return the size of a batch with its dictionaries expanded."""
    size = int(batch.nbytes)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
            size += pc.sum(lengths.cast(pa.int64())).as_py() or 0
    return size


def _batches(file: pq.ParquetFile, footer: Footer, number: int, group: RowGroup, rows: int) -> Iterator[pa.RecordBatch]:
    try:
        for batch in file.iter_batches(_rows_at_once(group, footer, rows), row_groups=[number], use_threads=False):
            size = _expanded_bytes(batch)
            if size > ROW_BYTES_MAX and size > 64 * footer.size:
                reason = f"{batch.num_rows} rows expand to {size} bytes"
                raise LimitExceeded(f"row group {number}", group.columns[0].start, reason, footer.path)
            yield batch
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise _column_error(file, footer, number, error) from error


def _column_error(file: pq.ParquetFile, footer: Footer, number: int, error: Exception) -> BadObject:
    """Return an error that names the first unreadable column of a row group."""
    for pages in footer.groups[number].columns:
        try:
            for _ in file.iter_batches(ROWS_MIN, row_groups=[number], columns=[pages.path], use_threads=False):
                pass
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as own:
            where = f"row group {number}, column {pages.path}"
            return BadObject(where, pages.start, f"it cannot be read ({type(own).__name__})", footer.path)
    return BadObject(f"row group {number}", footer.start, f"it cannot be read ({type(error).__name__})", footer.path)


def _instants(table: pa.Table, footer: Footer) -> pa.Table:
    """Return rows with the time zone of INT96 timestamps, which pyarrow reads without it."""
    for position, (field, declared) in enumerate(zip(table.schema, footer.schema, strict=True)):
        if pa.types.is_timestamp(field.type) and field.type != declared.type:
            chunks = [chunk.view(declared.type) for chunk in table.column(position).chunks]
            table = table.set_column(position, declared, pa.chunked_array(chunks, declared.type))
    return table


def _checked(table: pa.Table, cut: Cut, path: str) -> pa.Table:
    bounds = time_bounds(table.column(cut.column), cut.unit)
    if bounds is not None and not cut.start_ms <= bounds[0] <= bounds[1] < cut.end_ms:
        reason = f"times from {bounds[0]} to {bounds[1]} ms, but its statistics say [{cut.start_ms}, {cut.end_ms})"
        raise BadObject(f"column {cut.column}", -1, reason, path)
    return table


def _cut(table: pa.Table, cut: Cut, path: str) -> pa.Table:
    column = table.column(cut.column)
    if column.null_count:
        raise BadObject(f"column {cut.column}", -1, "a row without a time belongs to no chunk", path)
    times = milliseconds(column.combine_chunks(), cut.unit)
    return table.filter(pc.and_(pa.array(times >= cut.start_ms), pa.array(times < cut.end_ms)))
