"""Plan the merge of one folder of a chunk before any row is read: footers, common schema, sort order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa

from engine.core.errors import BadObject, MergeCancelled, UnknownFormat
from engine.core.version import VERSION
from engine.formats.parquet.file_rows import Cut, read_rows, rows_per_piece
from engine.formats.parquet.footers import Footer, read_footer
from engine.formats.parquet.schemas import unified_schema
from engine.formats.parquet.times import NoTimeType, scale_of
from engine.lanes.tables.jobs import TableChunk, TableFile, TableMergeSpec
from engine.lanes.tables.merge.conservation import Tally, summable
from engine.lanes.tables.merge.output_files import OutputRules
from engine.lanes.tables.merge.rolling import RollUpPlan, roll_up_json, rolled_file, rolled_schema
from engine.lanes.tables.merge.sort_keys import RowOrder, row_order
from engine.lanes.tables.plain.foreign_formats import check_footer
from engine.storage import ObjectStore

REQUESTS_AT_ONCE = 8
SKETCH_BYTES = 16 << 10
"""Expected size of a sketch, which reduces the rows of row groups with sketches; a full one is twice as large."""
PIECES_OF_BUDGET = 16
"""Divisor of the memory budget for one piece of rows."""


@dataclass(frozen=True, slots=True)
class SourceTotals:
    """Totals of all sources of a plan: rows, bytes in the store, uncompressed page bytes, and the prevailing codec."""

    rows: int
    size: int
    pages_bytes: int
    codec: str


@dataclass(frozen=True, slots=True)
class FolderPlan:
    """The plan of the merge of the files of one folder in one chunk.

    ``schema`` is that of the rows to sort: as they are, or rolled up per file.
    """

    spec: TableMergeSpec
    chunk: TableChunk
    folder: str
    files: tuple[TableFile, ...]
    schema: pa.Schema
    order: RowOrder
    roll_up: RollUpPlan | None
    totals: SourceTotals

    @property
    def name(self) -> str:
        return f"chunk {self.chunk.start_ms} folder {self.folder!r}" if self.folder else f"chunk {self.chunk.start_ms}"

    @property
    def piece_bytes(self) -> int:
        return self.spec.task_memory_bytes // PIECES_OF_BUDGET

    def tally(self) -> Tally:
        """Return an empty tally for the rows of this merge."""
        if self.roll_up is None:
            return Tally(summable(self.schema, [self.spec.time_column]))
        kept = {metric.name for metric in self.roll_up.metrics if metric.function in ("sum", "count")}
        others = [name for name in self.schema.names if name not in kept]
        return Tally(summable(self.schema, others), hashes=None)

    def rows_of(
        self, store: ObjectStore, number: int, footer: Footer, read: Tally, cancelled: Callable[[], bool]
    ) -> Iterator[pa.Table]:
        """Yield the rows of one file that belong to the chunk, in pieces; ``read`` counts them."""
        spec, plain = self.spec, self.roll_up is None
        start_ms, end_ms = self.chunk.start_ms, self.chunk.end_ms
        cut = Cut(spec.time_column, spec.time_unit, start_ms, end_ms, has_all=self.files[number].whole)
        pieces = read_rows(
            store,
            footer,
            self.schema if plain else None,
            cut=cut,
            rows=rows_per_piece(footer, self.piece_bytes),
            cancelled=cancelled,
        )
        if plain:
            for table in pieces:
                read.add(table)
                yield table
            return
        assert self.roll_up is not None
        yield rolled_file(pieces, self.roll_up, footer, read)

    def output_rules(self) -> OutputRules:
        """Return the rules for writing the result."""
        spec = self.spec
        rows = max(self.totals.rows, 1)
        metadata: dict[str, object] = {"version": VERSION, "sources": len(self.files), "fence": spec.fence}
        sketches = 0
        if self.roll_up is not None:
            metadata["roll_up"] = roll_up_json(self.roll_up.roll_up)
            sketches = sum(metric.function == "distinct" for metric in self.roll_up.metrics)
        return OutputRules(
            schema=self.schema,
            metadata=metadata,
            sorted_by=tuple(column.name for column in self.order.columns),
            target_bytes=spec.target_bytes,
            target_rows=spec.target_rows,
            row_bytes=self.totals.size / rows,
            row_pages_bytes=self.totals.pages_bytes / rows + sketches * SKETCH_BYTES,
            codec=self.totals.codec,
            time_column=spec.time_column,
            time_unit=spec.time_unit,
            path=lambda number: spec.output_path(self.chunk, self.folder, number),
        )


def plan_folder(
    spec: TableMergeSpec,
    chunk: TableChunk,
    folder: str,
    store: ObjectStore,
    *,
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[FolderPlan, tuple[Footer, ...]]:
    """Read the footers and determine schema and order. Raises BadObject, SchemaConflict, MergeRefused, StorageError."""
    files = tuple(chunk.folders()[folder])
    footers = read_footers(files, store, cancelled)
    for footer in footers:
        check_footer(footer)
        _check_time(footer, spec)
    roll_up, names = None, [*spec.sort_columns, spec.time_column]
    if spec.roll_up is None:
        schema = unified_schema((footer.path, footer.schema) for footer in footers)
    else:
        schema = rolled_schema(spec.roll_up, spec.time_column, footers)
        roll_up = RollUpPlan(spec.roll_up, spec.time_column, spec.time_unit, chunk.start_ms, schema)
        names = [name for name in names if name in roll_up.order] + list(spec.roll_up.dimensions)
    order = row_order(schema, names, _never_null(footers))
    return FolderPlan(spec, chunk, folder, files, schema, order, roll_up, _totals(footers)), footers


def read_footers(
    files: Sequence[TableFile], store: ObjectStore, cancelled: Callable[[], bool] = lambda: False
) -> tuple[Footer, ...]:
    """Read the footers of files and compare their row counts with the specification. Raises BadObject."""

    def read(file: TableFile) -> Footer:
        if cancelled():
            raise MergeCancelled(f"reading {file.path} was cancelled")
        footer = read_footer(store, file.path, file.size)
        if footer.rows != file.rows:
            reason = f"it has {footer.rows} rows, but {file.rows} were registered"
            raise BadObject("footer", footer.start, reason, file.path)
        return footer

    if len(files) == 1:
        return (read(files[0]),)
    with ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="footers") as pool:
        return tuple(pool.map(read, files))


def _totals(footers: Sequence[Footer]) -> SourceTotals:
    codecs: Counter[str] = Counter()
    for footer in footers:
        for group in footer.groups:
            for pages in group.columns:
                codecs[pages.codec] += pages.size
    return SourceTotals(
        rows=sum(footer.rows for footer in footers),
        size=sum(footer.size for footer in footers),
        pages_bytes=sum(footer.uncompressed_bytes for footer in footers),
        codec=max(sorted(codecs), key=codecs.__getitem__, default=""),
    )


def _check_time(footer: Footer, spec: TableMergeSpec) -> None:
    if spec.time_column not in footer.schema.names:
        raise UnknownFormat("footer", footer.start, f"there is no time column {spec.time_column!r}", footer.path)
    try:
        scale_of(footer.schema.field(spec.time_column).type, spec.time_unit)
    except NoTimeType as error:
        raise UnknownFormat(f"column {spec.time_column}", footer.start, str(error), footer.path) from error


def _never_null(footers: Sequence[Footer]) -> frozenset[str]:
    """Return the columns without nulls in any file, according to the statistics."""
    names: set[str] | None = None
    for footer in footers:
        for group in footer.groups:
            here = {pages.path for pages in group.columns if pages.statistics.nulls == 0}
            names = here if names is None else names & here
    return frozenset(names or ())
