"""Write sorted rows as Parquet files of the target size, first to disk, then to the store.

Row groups and files are cut depending only on preceding rows, never on the pieces in which rows arrive: equal rows give
equal bytes. A file that exceeds the target size, because its last rows compress worse than those before, is written
again with fewer rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import google_crc32c
import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.errors import MergeCancelled
from engine.formats.parquet.array_parts import one_array
from engine.formats.parquet.errors import NotConserved
from engine.formats.parquet.times import time_bounds
from engine.lanes.tables.jobs import WrittenFile
from engine.lanes.tables.merge.conservation import Tally
from engine.storage import ObjectStore

METADATA_KEY = b"lithify"
ROW_GROUP_BYTES = 64 << 20
"""Target of the uncompressed page bytes of a row group."""
ROW_GROUP_ROWS_MAX = 1 << 20
ROW_GROUP_ROWS_MIN = 1 << 10
MARGIN = 1.02
"""Factor by which following rows may be larger than the last ones before a file has to be written again."""
PART_BYTES = 8 << 20
CHUNK_FOOTER_BYTES = 320
"""Estimated bytes of a column chunk in footer and page index, without its name."""
COMPRESSION = {"SNAPPY": "snappy", "GZIP": "gzip", "ZSTD": "zstd"}
"""Codecs that are kept; files with another codec, or with none, become zstd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputRules:
    """How files are written.

    ``row_bytes`` and ``row_pages_bytes`` are the average sizes of a source row, compressed and uncompressed. ``path``
    returns the path of the n-th file. ``sorted_by`` are the columns by which rows are sorted.
    """

    schema: pa.Schema
    metadata: dict[str, object]
    sorted_by: tuple[str, ...]
    target_bytes: int
    target_rows: int
    row_bytes: float
    row_pages_bytes: float
    codec: str
    time_column: str
    time_unit: str
    path: Callable[[int], str]

    @property
    def row_group_rows(self) -> int:
        rows = int(ROW_GROUP_BYTES / max(self.row_pages_bytes, 1.0))
        return min(max(rows, ROW_GROUP_ROWS_MIN), ROW_GROUP_ROWS_MAX)

    @property
    def footer_bytes(self) -> int:
        """Estimated bytes of a footer without row groups."""
        return 1024 + 4 * int(self.schema.serialize().size)

    @property
    def group_footer_bytes(self) -> int:
        return 64 + sum(CHUNK_FOOTER_BYTES + len(name) for name in self.schema.names)


@dataclass(slots=True)
class _File:
    """A file that is being written."""

    path: Path
    writer: pq.ParquetWriter
    sink: pa.NativeFile
    tally: Tally
    rows: int = 0
    groups: int = 0
    low: int | None = None
    high: int | None = None


@dataclass(slots=True)
class OutputFiles:
    """Writes sorted rows; ``tally`` counts the rows written. ``scratch`` is an empty folder of its own."""

    rules: OutputRules
    store: ObjectStore
    scratch: Path
    tally: Tally
    cancelled: Callable[[], bool] = lambda: False
    written: list[WrittenFile] = field(default_factory=list)
    _waiting: list[pa.Table] = field(default_factory=list)
    _waiting_rows: int = 0
    _file: _File | None = None
    _row_bytes: float = 0.0
    _files: int = 0

    def add(self, table: pa.Table) -> None:
        """Add the next rows."""
        self._waiting.append(table)
        self._waiting_rows += table.num_rows
        while self._waiting_rows >= (rows := self._next_group()):
            self._write_group(rows)

    def finish(self) -> Sequence[WrittenFile]:
        """Write the remaining rows and return all files. Raises NotConserved, MergeCancelled, StorageError."""
        while self._waiting_rows:
            self._write_group(min(self._next_group(), self._waiting_rows))
        self._close()
        return self.written

    def withdraw(self) -> None:
        """Delete uploaded files; the caller deletes the scratch folder."""
        if self._file is not None:
            with suppress(pa.ArrowException, OSError):
                self._file.writer.close()
            self._file.sink.close()
            self._file = None
        for file in self.written:
            self.store.delete(file.path)

    def _next_group(self) -> int:
        """Return the number of rows of the next row group; a full file is closed first."""
        while True:
            file, rules = self._file, self.rules
            size, groups, rows = (file.sink.tell(), file.groups, file.rows) if file else (4, 0, 0)
            left = rules.target_bytes - size - rules.footer_bytes - (groups + 1) * rules.group_footer_bytes
            fitting = int(left / (MARGIN * max(self._row_bytes or rules.row_bytes, 1e-3)))
            if rules.target_rows:
                fitting = min(fitting, rules.target_rows - rows)
            if fitting >= rules.row_group_rows:
                return rules.row_group_rows
            # Small row groups are only written to files that have none yet.
            if not rows:
                return max(fitting, 1)
            if fitting >= max(rules.row_group_rows // 16, 1):
                return fitting
            self._close()

    def _write_group(self, rows: int) -> None:
        if self.cancelled():
            raise MergeCancelled("writing of rows was cancelled")
        table = self._pop_rows(rows)
        file = self._file = self._file or self._opened()
        file.tally.add(table)
        before = file.sink.tell()
        file.writer.write_table(table, row_group_size=rows)
        self._row_bytes = (file.sink.tell() - before) / rows
        file.rows += rows
        file.groups += 1
        if bounds := time_bounds(table.column(self.rules.time_column), self.rules.time_unit):
            low, high = bounds
            file.low = low if file.low is None else min(file.low, low)
            file.high = high if file.high is None else max(file.high, high)

    def _pop_rows(self, rows: int) -> pa.Table:
        """Remove and return the first waiting rows as one table."""
        taken, count = [], 0
        while count < rows:
            table = self._waiting.pop(0)
            part = table.slice(0, rows - count)
            taken.append(part)
            count += part.num_rows
            if part.num_rows < table.num_rows:
                self._waiting.insert(0, table.slice(part.num_rows))
        self._waiting_rows -= rows
        combined = pa.concat_tables(taken)
        return pa.Table.from_arrays([one_array(column) for column in combined.columns], schema=self.rules.schema)

    def _opened(self) -> _File:
        rules = self.rules
        path = self.scratch / f"{self._files}.parquet"
        self._files += 1
        sink = pa.OSFile(str(path), "wb")
        schema = rules.schema.with_metadata({METADATA_KEY: json.dumps(rules.metadata, sort_keys=True).encode()})
        ordering = [(name, "ascending") for name in rules.sorted_by]
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression=COMPRESSION.get(rules.codec, "zstd"),
            write_page_index=True,
            write_page_checksum=True,
            sorting_columns=pq.SortingColumn.from_ordering(schema, ordering, null_placement="at_start")
            if ordering
            else None,
        )
        return _File(path, writer, sink, self.tally.empty())

    def _close(self) -> None:
        """Finish and upload the current file; one that is too large is written again with fewer rows."""
        file, self._file = self._file, None
        if file is None:
            return
        file.writer.close()
        file.sink.close()
        if file.path.stat().st_size > self.rules.target_bytes and file.rows > 1:
            self._rewrite(file)
        else:
            self._send(file)
        file.path.unlink()

    def _rewrite(self, large: _File) -> None:
        """Write the rows of a file that is too large to two or more files."""
        later, rows_later = self._waiting, self._waiting_rows
        self._waiting, self._waiting_rows = [], 0
        size = large.path.stat().st_size
        first = min(max(int(large.rows * self.rules.target_bytes / size / MARGIN), 1), large.rows - 1)
        with pq.ParquetFile(large.path) as source:
            for batch in source.iter_batches(self.rules.row_group_rows, use_threads=False):
                table = pa.Table.from_batches([batch]).cast(self.rules.schema)
                if first:
                    self._waiting.append(part := table.slice(0, first))
                    self._waiting_rows = part.num_rows
                    self._write_group(part.num_rows)
                    first -= part.num_rows
                    table = table.slice(part.num_rows)
                    if not first:
                        self._close()
                self.add(table)
        self._waiting += later
        self._waiting_rows += rows_later

    def _send(self, file: _File) -> None:
        """Upload a finished file, and count its rows as written."""
        footer = pq.read_metadata(file.path)
        if footer.num_rows != file.rows:
            raise NotConserved(f"{file.path.name} has {footer.num_rows} rows, but {file.rows} were written to it")
        key, size, crc = self.rules.path(len(self.written)), file.path.stat().st_size, 0
        with open(file.path, "rb") as source, self.store.open_writer(key) as upload:
            while part := source.read(PART_BYTES):
                if self.cancelled():
                    raise MergeCancelled(f"the upload of {key} was cancelled")
                crc = google_crc32c.extend(crc, part)
                upload.write(part)
        self.tally.include(file.tally)
        self.written.append(
            WrittenFile(path=key, size=size, crc32c=crc, rows=file.rows, min_time_ms=file.low, max_time_ms=file.high)
        )
