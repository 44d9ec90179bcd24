"""Validation of Parquet footers before pyarrow reads them, because some damaged ones terminate the process.

pyarrow's metadata objects throw uncaught C++ exceptions: for an unknown codec, for level histograms that do not match
the schema. Such a footer, and one with missing rows, raises ``BadObject`` here; pyarrow may still reject valid ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.core.binary import ByteReader
from engine.core.errors import BadObject, LimitExceeded, Truncated, UnknownFormat

MAGIC = b"PAR1"
TAIL_BYTES = 8
DEPTH_MAX = 16
"""Maximum nesting of structs and lists in a footer; real ones have about 8."""
FOOTER_BYTES_MAX = 16 << 20
CODECS = range(8)
ENCODINGS = range(10)
PHYSICAL_TYPES = range(8)
REPETITIONS = range(3)

_SECTION = "profiles"
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = (4, 5, 6)

Fields = dict[int, Any]
"""A Thrift struct: values by field number, which may be structs and lists."""


class _Leaf(NamedTuple):
    """The maximum definition and repetition levels of a column."""

    definition: int
    repetition: int


def check_table_footer(read: Callable[[int, int], bytes], size: int) -> None:
    """Validate the footer of a table of ``size`` bytes, which ``read(offset, length)`` reads. Raises BadObject."""
    if size < len(MAGIC) + TAIL_BYTES:
        raise Truncated(_SECTION, 0, f"{size} bytes are too short for a profile table")
    tail = read(size - TAIL_BYTES, TAIL_BYTES)
    footer_size = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC:
        raise UnknownFormat(_SECTION, size - 4, "not a Parquet file")
    start = size - TAIL_BYTES - footer_size
    if start < len(MAGIC) or footer_size > FOOTER_BYTES_MAX:
        raise LimitExceeded(_SECTION, size - TAIL_BYTES, f"a footer of {footer_size} bytes is too large")
    checked_footer(read(start, footer_size))


def checked_footer(data: bytes, section: str = _SECTION) -> Fields:
    """Return the fields of a Parquet footer that is safe for pyarrow. Raises BadObject otherwise."""
    metadata = _struct(ByteReader(data, section), 0)
    try:
        _check_metadata(metadata)
    except BadObject as error:
        raise type(error)(section, error.offset, error.reason) from error
    return metadata


def _struct(reader: ByteReader, depth: int) -> Fields:
    fields: Fields = {}
    number = 0
    while header := reader.u8():
        number = number + (header >> 4) if header >> 4 else reader.svarint()
        kind = header & 15
        fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else _value(reader, kind, depth + 1)
        if not kind:
            raise BadObject(_SECTION, reader.position, "a footer field without a type")
    return fields


def _value(reader: ByteReader, kind: int, depth: int) -> Any:
    """Return the value of a field; that of a list is the list of its elements."""
    if depth > DEPTH_MAX:
        raise LimitExceeded(_SECTION, reader.position, f"the footer is nested deeper than {DEPTH_MAX}")
    if kind in _INTEGERS:
        return reader.svarint()
    if kind in (_BYTE, _TRUE, _FALSE):
        return reader.u8()
    if kind == _DOUBLE:
        return reader.take(8)
    if kind == _BINARY:
        return reader.text()
    if kind == _STRUCT:
        return _struct(reader, depth)
    if kind in (_LIST, _SET):
        header = reader.u8()
        count = reader.uvarint() if header >> 4 == 15 else header >> 4
        if count > reader.end - reader.position:
            raise LimitExceeded(_SECTION, reader.position, f"a footer list of {count} elements does not fit")
        return [_value(reader, header & 15, depth + 1) for _ in range(count)]
    raise UnknownFormat(_SECTION, reader.position, f"unknown type {kind} of a footer value")


def _check_metadata(metadata: Fields) -> None:
    leaves = _leaves(_structs(metadata, 2))
    groups = _structs(metadata, 4)
    for group in groups:
        columns = _structs(group, 1)
        if len(columns) != len(leaves):
            raise BadObject(_SECTION, -1, f"a row group has {len(columns)} columns, the schema {len(leaves)}")
        for column, leaf in zip(columns, leaves, strict=True):
            _check_column(_field(column, 3, dict), leaf)
    rows = sum(_field(group, 3, int) for group in groups)
    if rows != _field(metadata, 3, int):
        raise BadObject(_SECTION, -1, f"the row groups have {rows} rows, the table {metadata[3]}")


def _field(fields: Fields, number: int, kind: type) -> Any:
    value = fields.get(number)
    if not isinstance(value, kind):
        raise BadObject(_SECTION, -1, f"the footer has no {kind.__name__} in field {number}")
    return value


def _structs(fields: Fields, number: int) -> list[Fields]:
    values = _field(fields, number, list)
    if not all(isinstance(value, dict) for value in values):
        raise BadObject(_SECTION, -1, f"field {number} of the footer is not a list of structs")
    return list(values)


def _leaves(elements: list[Fields]) -> list[_Leaf]:
    """Return the leaves of the flattened schema in order."""
    leaves: list[_Leaf] = []
    parents: list[list[Any]] = []
    for element in elements:
        children = element.get(5, 0)
        if not isinstance(children, int) or not 0 <= children <= len(elements) or len(parents) > DEPTH_MAX:
            raise LimitExceeded(_SECTION, -1, f"a schema group with {children} children exceeds the limits")
        if not parents:
            leaf = _Leaf(0, 0)
        else:
            while parents and not parents[-1][0]:
                parents.pop()
            if not parents:
                raise BadObject(_SECTION, -1, "a schema element belongs to no group")
            parents[-1][0] -= 1
            leaf = _below(parents[-1][1], element)
        if children or not parents:
            parents.append([children, leaf])
        else:
            leaves.append(leaf)
    return leaves


def _below(parent: _Leaf, element: Fields) -> _Leaf:
    repetition = element.get(3)
    if repetition not in REPETITIONS:
        raise UnknownFormat(_SECTION, -1, f"unknown repetition {repetition} of a schema element")
    if not element.get(5, 0) and element.get(1) not in PHYSICAL_TYPES:
        raise UnknownFormat(_SECTION, -1, f"unknown physical type {element.get(1)} of a column")
    return _Leaf(parent.definition + (repetition != 0), parent.repetition + (repetition == 2))


def _check_column(column: Fields, leaf: _Leaf) -> None:
    if column.get(1) not in PHYSICAL_TYPES or column.get(4) not in CODECS:
        raise UnknownFormat(_SECTION, -1, f"unknown type {column.get(1)} or codec {column.get(4)} of a column")
    encodings = _field(column, 2, list)
    if not all(encoding in ENCODINGS for encoding in encodings):
        raise UnknownFormat(_SECTION, -1, f"unknown encodings {encodings} of a column")
    statistics = column.get(16, {})
    if not isinstance(statistics, dict):
        raise BadObject(_SECTION, -1, "the size statistics are not a struct")
    for number, level in ((2, leaf.repetition), (3, leaf.definition)):
        histogram = statistics.get(number, [])
        if not isinstance(histogram, list) or len(histogram) not in (0, level + 1):
            raise BadObject(_SECTION, -1, "a level histogram does not match the schema")
