"""Validated reader of Parquet footers, with few range requests.

Verified before use: both magics, the length of the footer, that every column chunk is inside the file and before the
footer, that the row counts of row groups, columns and file agree, and that column names are unique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from engine.core.errors import BadObject, LimitExceeded, Truncated, UnknownFormat
from engine.formats.profile_block.table.table_footer import Fields, checked_footer
from engine.storage import InvalidRange, ObjectStore

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
END_BYTES = 8
"""Length of the footer and magic, at the end of the file."""
TAIL_BYTES = 64 << 10
"""Size of the first request; most footers are shorter."""
FOOTER_BYTES_MAX = 16 << 20
ROWS_MAX = 1 << 40
ROW_GROUP_ROWS_MAX = (1 << 31) - 1
DEPTH_MAX = 64
SECTION = "footer"
CODECS = ("NONE", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")
"""Codecs by their number in the format."""
INT96, BYTE_ARRAY = 3, 6
DICTIONARY_ENCODINGS = (2, 8)
NESTED_VALUES_MAX = 1 << 27
NESTED_VALUES_PER_BYTE = 1000
"""A row group with more nested values than both limits allow is rejected, as it could exhaust memory."""
INSTANT = pa.timestamp("us", "UTC")
"""Type of INT96 timestamps: instants, which readers truncate to microseconds."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Statistics of a column chunk: null count and encoded bounds, None if absent."""

    nulls: int | None
    low: bytes | None
    high: bytes | None


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """A column chunk: the dotted path of its leaf column, and the position and size of its pages in the file.

    ``uncompressed_bytes`` is the size of its uncompressed pages. ``repeats`` is true if it has dictionary-encoded
    values of variable length, which can expand to any size.
    """

    path: str
    start: int
    size: int
    uncompressed_bytes: int
    codec: str
    repeats: bool
    statistics: ColumnStatistics


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group: the size of its uncompressed pages, and the leaf columns by which it is sorted, ascending."""

    rows: int
    uncompressed_bytes: int
    sorted_by: tuple[str, ...]
    columns: tuple[ColumnPages, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A validated footer. ``size`` is that of the file, ``schema`` that of pyarrow, without metadata.

    ``key_values`` is the key-value metadata of the file; ``start`` is the position of the footer.
    """

    path: str
    size: int
    start: int
    rows: int
    schema: pa.Schema
    groups: tuple[RowGroup, ...]
    key_values: Mapping[bytes, bytes]

    @property
    def uncompressed_bytes(self) -> int:
        return sum(group.uncompressed_bytes for group in self.groups)

    @property
    def sorted_by(self) -> tuple[str, ...]:
        """The leaf columns by which every row group is declared to be sorted; row groups may still overlap."""
        declared = [group.sorted_by for group in self.groups]
        if not declared:
            return ()
        shortest = min(declared, key=len)
        for length, column in enumerate(shortest):
            if any(names[length] != column for names in declared):
                return shortest[:length]
        return shortest


def read_footer(store: ObjectStore, path: str, size: int | None = None) -> Footer:
    """Return the validated footer of an object; ``size``, if given, must be its size and saves a request.

    Sends two requests for most files, one for short ones. Raises BadObject, which names ``path``, and StorageError.
    """
    size = store.head(path).size if size is None else size
    try:
        tail = store.get_range(path, max(size - TAIL_BYTES, 0), min(size, TAIL_BYTES))
        length = _footer_length(tail, size)
        if length + END_BYTES > len(tail):
            tail = store.get_range(path, size - length - END_BYTES, length + END_BYTES)
        head = tail[: len(MAGIC)] if len(tail) == size else store.get_range(path, 0, len(MAGIC))
        return parse_footer(head, tail, size, path)
    except InvalidRange as error:
        raise Truncated(SECTION, -1, f"the file is shorter than {size} bytes", path) from error
    except BadObject as error:
        raise error.in_object(path) from error


def parse_footer(head: bytes, tail: bytes, size: int, path: str = "") -> Footer:
    """Return the footer from the first four bytes and the tail of a file of ``size`` bytes. Raises BadObject."""
    length = _footer_length(tail, size)
    start = size - END_BYTES - length
    if head != MAGIC:
        raise UnknownFormat(SECTION, 0, f"the file does not begin with {MAGIC!r}", path)
    data = tail[-END_BYTES - length : -END_BYTES]
    try:
        metadata = checked_footer(data, SECTION)
    except BadObject as error:
        raise type(error)(SECTION, start + max(error.offset, 0), error.reason, path) from error
    groups = tuple(_row_group(number, fields, start) for number, fields in enumerate(metadata[4]))
    rows = metadata[3]
    if not 0 <= rows <= ROWS_MAX:
        raise LimitExceeded(SECTION, start, f"{rows} rows are out of range")
    _check_same_columns(groups, start)
    return Footer(
        path=path,
        size=size,
        start=start,
        rows=rows,
        schema=_schema(MAGIC + data + tail[-END_BYTES:], metadata, start),
        groups=groups,
        key_values=_key_values(metadata),
    )


def _footer_length(tail: bytes, size: int) -> int:
    if size < len(MAGIC) + END_BYTES:
        raise Truncated(SECTION, 0, f"{size} bytes are too short for a Parquet file")
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise UnknownFormat(SECTION, size - 4, "the footer is encrypted")
    if tail[-4:] != MAGIC:
        raise UnknownFormat(SECTION, size - 4, f"the file does not end with {MAGIC!r}")
    length = int.from_bytes(tail[-END_BYTES:-4], "little")
    if not 0 < length <= size - END_BYTES - len(MAGIC):
        raise Truncated(SECTION, size - END_BYTES, f"a footer of {length} bytes does not fit in a file of {size} bytes")
    if length > FOOTER_BYTES_MAX:
        reason = f"a footer of {length} bytes exceeds the maximum of {FOOTER_BYTES_MAX}"
        raise LimitExceeded(SECTION, size - END_BYTES, reason)
    return length


def _row_group(number: int, fields: Fields, footer_start: int) -> RowGroup:
    """Return a row group; ``checked_footer`` has verified the presence of its required fields."""
    where, rows, size = f"row group {number}", fields[3], fields.get(2)
    if not 0 <= rows <= ROW_GROUP_ROWS_MAX or not isinstance(size, int) or size < 0:
        raise LimitExceeded(where, footer_start, f"{rows} rows in {size} bytes are out of range")
    columns = []
    for column in fields[1]:
        if column.get(1):
            raise UnknownFormat(where, footer_start, "its columns are in another file")
        columns.append(_column(column[3], where, rows, footer_start))
    return RowGroup(rows, size, _sorted_by(fields.get(4), columns), tuple(columns))


def _column(fields: Fields, where: str, rows: int, footer_start: int) -> ColumnPages:
    """Return a column chunk; raise BadObject if its position or counts are impossible."""
    path = fields.get(3)
    if not isinstance(path, list) or not path or not all(isinstance(part, bytes) for part in path):
        raise BadObject(where, footer_start, "a column has no path")
    name = b".".join(path).decode(errors="replace")
    where = f"{where}, column {name}"
    values, uncompressed, size, start = (_number(fields.get(number), where, footer_start) for number in (5, 6, 7, 9))
    dictionary = fields.get(11)
    if isinstance(dictionary, int) and 0 < dictionary < start:
        start = dictionary
    if values and (start < len(MAGIC) or start + size > footer_start):
        reason = f"its bytes {start} to {start + size} overlap the footer at {footer_start}"
        raise BadObject(where, start, reason)
    if len(path) == 1 and values != rows:
        raise BadObject(where, start, f"{values} values in {rows} rows")
    if values > NESTED_VALUES_MAX and values > NESTED_VALUES_PER_BYTE * size:
        raise LimitExceeded(where, start, f"{values} values in {size} bytes exceed the limit")
    repeats = fields[1] == BYTE_ARRAY and any(encoding in DICTIONARY_ENCODINGS for encoding in fields[2])
    return ColumnPages(name, start, size, uncompressed, CODECS[fields[4]], repeats, _statistics(fields.get(12)))


def _number(value: object, where: str, footer_start: int) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise BadObject(where, footer_start, f"a count, size or position is {value}")
    return value


def _statistics(fields: object) -> ColumnStatistics:
    if not isinstance(fields, dict):
        return ColumnStatistics(None, None, None)
    nulls, low, high = fields.get(3), fields.get(6, fields.get(2)), fields.get(5, fields.get(1))
    return ColumnStatistics(
        nulls if isinstance(nulls, int) and nulls >= 0 else None,
        low if isinstance(low, bytes) else None,
        high if isinstance(high, bytes) else None,
    )


def _sorted_by(sortings: object, columns: list[ColumnPages]) -> tuple[str, ...]:
    names: list[str] = []
    for sorting in sortings if isinstance(sortings, list) else ():
        position = sorting.get(1) if isinstance(sorting, dict) else None
        if not isinstance(position, int) or not 0 <= position < len(columns) or sorting.get(2):
            break
        names.append(columns[position].path)
    return tuple(names)


def _check_same_columns(groups: tuple[RowGroup, ...], start: int) -> None:
    paths = {tuple(column.path for column in group.columns) for group in groups}
    if len(paths) > 1:
        raise BadObject(SECTION, start, "its row groups have different columns")


def open_parquet(source: pa.NativeFile, *, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    """Open a file with a validated footer; its columns have the types of ``Footer.schema``, INT96 without time zone.

    The text columns of ``dictionaries`` are read as dictionary arrays, so that repeated values are not expanded.
    """
    return pq.ParquetFile(
        source,
        read_dictionary=list(dictionaries),
        coerce_int96_timestamp_unit="us",
        thrift_string_size_limit=FOOTER_BYTES_MAX,
        thrift_container_size_limit=FOOTER_BYTES_MAX,
        schema_depth_limit=DEPTH_MAX,
        page_checksum_verification=True,
        pre_buffer=False,
    )


def _schema(footer_only: bytes, metadata: Fields, start: int) -> pa.Schema:
    """Return the schema that pyarrow reads from a file that consists of a footer only."""
    try:
        schema = open_parquet(pa.BufferReader(footer_only)).schema_arrow.remove_metadata()
        names = schema.names
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise BadObject(SECTION, start, f"it cannot be read ({type(error).__name__})") from error
    if len(set(names)) != len(names):
        duplicates = sorted({name for name in names if names.count(name) > 1})
        raise UnknownFormat(SECTION, start, f"two columns are named {duplicates[0]!r}")
    for element in metadata[2]:
        name = element.get(4, b"").decode(errors="replace")
        if element.get(1) == INT96 and name in names and pa.types.is_timestamp(schema.field(name).type):
            schema = schema.set(names.index(name), schema.field(name).with_type(INSTANT))
    return schema


def _key_values(metadata: Fields) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    pairs = metadata.get(5)
    for pair in pairs if isinstance(pairs, list) else ():
        key, value = (pair.get(1), pair.get(2)) if isinstance(pair, dict) else (None, None)
        if isinstance(key, bytes) and isinstance(value, bytes):
            found[key] = value
    return found
