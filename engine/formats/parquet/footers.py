"""The footer of a Parquet file: read with few range requests, and believed only as far as the file can bear it out.

What is checked before anything of it is used: both magics, the footer's length, that every column chunk lies inside
the file and before the footer, that row counts of row groups, columns and file agree, and that no name stands twice.
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
"""The footer's length and the magic, after the footer."""
TAIL_BYTES = 64 << 10
"""What is fetched first: most footers are shorter."""
FOOTER_BYTES_MAX = 16 << 20
ROWS_MAX = 1 << 40
ROW_GROUP_ROWS_MAX = (1 << 31) - 1
DEPTH_MAX = 64
SECTION = "footer"
CODECS = ("NONE", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4")
"""By their number in the format."""
INT96, BYTE_ARRAY = 3, 6
DICTIONARY_ENCODINGS = (2, 8)
NESTED_VALUES_MAX = 1 << 27
NESTED_VALUES_PER_BYTE = 1000
"""Of values in lists, a row group has more than these only if it wants to fill the memory."""
INSTANT = pa.timestamp("us", "UTC")
"""What the old INT96 timestamps are: instants, which no reader of them takes finer than microseconds."""


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What a column chunk says of its values: null count and raw bounds as stored, None where it says nothing."""

    nulls: int | None
    low: bytes | None
    high: bytes | None


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """A column chunk: the dotted path of its leaf, where its pages begin and how many bytes they have in the file.

    ``uncompressed_bytes`` are those of its pages. ``repeats``: it holds bytes of any length, of which a dictionary lets
    a few bytes of the file repeat one as often as they like.
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
    """A row group: the bytes that its pages hold uncompressed, and the leaves it is sorted by, ascending."""

    rows: int
    uncompressed_bytes: int
    sorted_by: tuple[str, ...]
    columns: tuple[ColumnPages, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A checked footer; ``size`` is the file's, ``schema`` what pyarrow reads the columns as, without metadata.

    ``key_values`` are what writers noted beside it; ``start`` is where the footer begins in the file.
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
        """The leaves that every row group says it is sorted by; row groups may still overlap."""
        told = [group.sorted_by for group in self.groups]
        if not told:
            return ()
        shortest = min(told, key=len)
        for length, column in enumerate(shortest):
            if any(names[length] != column for names in told):
                return shortest[:length]
        return shortest


def read_footer(store: ObjectStore, path: str, size: int | None = None) -> Footer:
    """Read and check the footer of an object; ``size`` saves the question for it, and must then be right.

    Two requests for most files, one for those that are short. Raises a BadObject naming ``path``, StorageError.
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
    """Check the first four bytes and the last (at least the footer) of a file of ``size`` bytes. Raises a BadObject."""
    length = _footer_length(tail, size)
    start = size - END_BYTES - length
    if head != MAGIC:
        raise UnknownFormat(SECTION, 0, f"the file does not begin with {MAGIC!r}", path)
    data = tail[-END_BYTES - length : -END_BYTES]
    try:
        metadata = checked_footer(data, SECTION)
    except BadObject as error:
        raise type(error)(SECTION, start + max(error.offset, 0), error.reason, path) from error
    groups = tuple(_row_group(number, told, start) for number, told in enumerate(metadata[4]))
    rows = metadata[3]
    if not 0 <= rows <= ROWS_MAX:
        raise LimitExceeded(SECTION, start, f"it says {rows} rows")
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
        raise Truncated(SECTION, 0, f"{size} bytes are no Parquet file")
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise UnknownFormat(SECTION, size - 4, "the footer is encrypted")
    if tail[-4:] != MAGIC:
        raise UnknownFormat(SECTION, size - 4, f"the file does not end with {MAGIC!r}")
    length = int.from_bytes(tail[-END_BYTES:-4], "little")
    if not 0 < length <= size - END_BYTES - len(MAGIC):
        raise Truncated(SECTION, size - END_BYTES, f"a footer of {length} bytes is not in a file of {size}")
    if length > FOOTER_BYTES_MAX:
        reason = f"a footer of {length} bytes; at most {FOOTER_BYTES_MAX} are read"
        raise LimitExceeded(SECTION, size - END_BYTES, reason)
    return length


def _row_group(number: int, told: Fields, footer_start: int) -> RowGroup:
    """Take a row group apart; ``told`` has the fields that ``checked_footer`` has looked at."""
    where, rows, size = f"row group {number}", told[3], told.get(2)
    if not 0 <= rows <= ROW_GROUP_ROWS_MAX or not isinstance(size, int) or size < 0:
        raise LimitExceeded(where, footer_start, f"it says it has {rows} rows in {size} bytes")
    columns = []
    for column in told[1]:
        if column.get(1):
            raise UnknownFormat(where, footer_start, "its columns lie in another file")
        columns.append(_column(column[3], where, rows, footer_start))
    return RowGroup(rows, size, _sorted_by(told.get(4), columns), tuple(columns))


def _column(told: Fields, where: str, rows: int, footer_start: int) -> ColumnPages:
    """Check that a column chunk lies where a file can have it."""
    path = told.get(3)
    if not isinstance(path, list) or not path or not all(isinstance(part, bytes) for part in path):
        raise BadObject(where, footer_start, "a column has no path")
    name = b".".join(path).decode(errors="replace")
    where = f"{where}, column {name}"
    values, uncompressed, size, start = (_number(told.get(number), where, footer_start) for number in (5, 6, 7, 9))
    dictionary = told.get(11)
    if isinstance(dictionary, int) and 0 < dictionary < start:
        start = dictionary
    if values and (start < len(MAGIC) or start + size > footer_start):
        reason = f"it would lie in bytes {start} to {start + size}; the footer begins at {footer_start}"
        raise BadObject(where, start, reason)
    if len(path) == 1 and values != rows:
        raise BadObject(where, start, f"it has {values} values in {rows} rows")
    if values > NESTED_VALUES_MAX and values > NESTED_VALUES_PER_BYTE * size:
        raise LimitExceeded(where, start, f"{size} bytes promise {values} values")
    repeats = told[1] == BYTE_ARRAY and any(encoding in DICTIONARY_ENCODINGS for encoding in told[2])
    return ColumnPages(name, start, size, uncompressed, CODECS[told[4]], repeats, _statistics(told.get(12)))


def _number(value: object, where: str, footer_start: int) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise BadObject(where, footer_start, f"a count, size or place is {value}")
    return value


def _statistics(told: object) -> ColumnStatistics:
    if not isinstance(told, dict):
        return ColumnStatistics(None, None, None)
    nulls, low, high = told.get(3), told.get(6, told.get(2)), told.get(5, told.get(1))
    return ColumnStatistics(
        nulls if isinstance(nulls, int) and nulls >= 0 else None,
        low if isinstance(low, bytes) else None,
        high if isinstance(high, bytes) else None,
    )


def _sorted_by(told: object, columns: list[ColumnPages]) -> tuple[str, ...]:
    names: list[str] = []
    for sorting in told if isinstance(told, list) else ():
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
    """Open a file whose footer is checked; it reads columns as ``Footer.schema`` has them, INT96 without time zone.

    Columns of text among ``dictionaries`` come as indices into the values there are, however often these are repeated.
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
    """Return the schema as pyarrow reads it, of a file of nothing but a footer."""
    try:
        schema = open_parquet(pa.BufferReader(footer_only)).schema_arrow.remove_metadata()
        names = schema.names
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, RecursionError) as error:
        raise BadObject(SECTION, start, f"it cannot be read ({type(error).__name__})") from error
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise UnknownFormat(SECTION, start, f"two columns are named {twice[0]!r}")
    for element in metadata[2]:
        name = element.get(4, b"").decode(errors="replace")
        if element.get(1) == INT96 and name in names and pa.types.is_timestamp(schema.field(name).type):
            schema = schema.set(names.index(name), schema.field(name).with_type(INSTANT))
    return schema


def _key_values(metadata: Fields) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    told = metadata.get(5)
    for pair in told if isinstance(told, list) else ():
        key, value = (pair.get(1), pair.get(2)) if isinstance(pair, dict) else (None, None)
        if isinstance(key, bytes) and isinstance(value, bytes):
            found[key] = value
    return found
