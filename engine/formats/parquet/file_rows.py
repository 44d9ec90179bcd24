"""The rows of Parquet files, in bounded pieces and in the schema of a merge; damage is named by file and column."""

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
"""What decoded rows of one piece may hold at most: a few bytes of a file can promise any number of equal values."""
NESTED_BYTES_MAX = 1 << 30
"""The same of text in lists, if every value were as large as all values there are."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Only the rows of one interval are wanted (unix milliseconds, the end exclusive).

    ``has_all``: the file says that all of its rows with a time lie in it, and it is damage if one does not.
    """

    column: str
    unit: str
    start_ms: int
    end_ms: int
    has_all: bool = False


def rows_per_piece(footer: Footer, piece_bytes: int) -> int:
    """Return how many rows of a file are about ``piece_bytes``: pages tell less than values take in memory."""
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
    """Yield the rows of a file in pieces of at most ``rows``, cast to ``schema`` (None: as the file has them).

    Raises a BadObject naming the file, row group and column, SchemaConflict, MergeCancelled, StorageError.
    """
    file = _opened(store, footer)
    for number, group in enumerate(footer.groups):
        found = 0
        for batch in _batches(file, footer, number, group, rows):
            if cancelled():
                raise MergeCancelled(f"reading {footer.path}: nobody wants the rows any more")
            found += batch.num_rows
            table = _instants(pa.Table.from_batches([batch]), footer)
            if cut is not None:
                table = _checked(table, cut, footer.path) if cut.has_all else _cut(table, cut, footer.path)
            yield table if schema is None else cast_batch(table, schema, footer.path)
        if found != group.rows:
            raise BadObject(f"row group {number}", footer.start, f"it has {found} of {group.rows} rows", footer.path)


def _opened(store: ObjectStore, footer: Footer) -> pq.ParquetFile:
    try:
        return open_parquet(open_object(store, footer.path, footer.size), dictionaries=_repeating(footer))
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise BadObject(
            "footer", footer.start, f"it cannot be read any more ({type(error).__name__})", footer.path
        ) from error


def _repeating(footer: Footer) -> list[str]:
    """Return the flat columns of text that are read as dictionaries, so that nothing unfolds before it is measured."""
    flat = {field.name for field in footer.schema if is_text_or_bytes(field.type)}
    return sorted({pages.path for group in footer.groups for pages in group.columns if pages.repeats} & flat)


def _rows_at_once(group: RowGroup, footer: Footer, rows: int) -> int:
    """Return how many rows of a row group are decoded at once: fewer where text in lists may unfold unmeasured."""
    nested = [pages for pages in group.columns if pages.repeats and pages.path not in footer.schema.names]
    largest = max((pages.uncompressed_bytes for pages in nested), default=0)
    return max(min(rows, NESTED_BYTES_MAX // max(largest, 1)), 1)


def _unfolded(batch: pa.RecordBatch) -> int:
    """Return the bytes of a batch once its dictionaries are plain."""
    size = int(batch.nbytes)
    for column in batch.columns:
        if pa.types.is_dictionary(column.type) and len(column.dictionary):
            lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
            size += pc.sum(lengths.cast(pa.int64())).as_py() or 0
    return size


def _batches(file: pq.ParquetFile, footer: Footer, number: int, group: RowGroup, rows: int) -> Iterator[pa.RecordBatch]:
    try:
        for batch in file.iter_batches(_rows_at_once(group, footer, rows), row_groups=[number], use_threads=False):
            size = _unfolded(batch)
            if size > ROW_BYTES_MAX and size > 64 * footer.size:
                reason = f"{batch.num_rows} rows unfold to {size} bytes"
                raise LimitExceeded(f"row group {number}", group.columns[0].start, reason, footer.path)
            yield batch
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise _blamed(file, footer, number, error) from error


def _blamed(file: pq.ParquetFile, footer: Footer, number: int, error: Exception) -> BadObject:
    """Return the error of a row group naming the column that cannot be read."""
    for pages in footer.groups[number].columns:
        try:
            for _ in file.iter_batches(ROWS_MIN, row_groups=[number], columns=[pages.path], use_threads=False):
                pass
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as own:
            where = f"row group {number}, column {pages.path}"
            return BadObject(where, pages.start, f"it cannot be read ({type(own).__name__})", footer.path)
    return BadObject(f"row group {number}", footer.start, f"it cannot be read ({type(error).__name__})", footer.path)


def _instants(table: pa.Table, footer: Footer) -> pa.Table:
    """Return rows with the time zone of old timestamps, which pyarrow reads without."""
    for place, (field, told) in enumerate(zip(table.schema, footer.schema, strict=True)):
        if pa.types.is_timestamp(field.type) and field.type != told.type:
            column = pa.chunked_array([chunk.view(told.type) for chunk in table.column(place).chunks], told.type)
            table = table.set_column(place, told, column)
    return table


def _checked(table: pa.Table, cut: Cut, path: str) -> pa.Table:
    bounds = time_bounds(table.column(cut.column), cut.unit)
    if bounds is not None and not cut.start_ms <= bounds[0] <= bounds[1] < cut.end_ms:
        reason = f"it has times from {bounds[0]} to {bounds[1]} ms, and its statistics say that all lie in one chunk"
        raise BadObject(f"column {cut.column}", -1, f"{reason}, [{cut.start_ms}, {cut.end_ms})", path)
    return table


def _cut(table: pa.Table, cut: Cut, path: str) -> pa.Table:
    column = table.column(cut.column)
    if column.null_count:
        raise BadObject(f"column {cut.column}", -1, "a row without a time belongs to no chunk", path)
    times = milliseconds(column.combine_chunks(), cut.unit)
    return table.filter(pc.and_(pa.array(times >= cut.start_ms), pa.array(times < cut.end_ms)))
