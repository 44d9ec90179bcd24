"""Lossless encoding of Arrow rows for a sort in Spark, and decoding.

Spark has no unsigned integers, no nanoseconds and no fixed-size binary, and normalises NaN. So every column is encoded
as signed integers of its width or as binary. Nested columns are not supported.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from engine.formats.parquet.array_parts import is_text_or_bytes, one_array

KEY = "key"
REPORT = "report"
"""Column of the reports of tasks; a report row has an empty key, so that it sorts first."""
_WIDTHS = {8: (pa.int8(), "tinyint"), 16: (pa.int16(), "smallint"), 32: (pa.int32(), "int"), 64: (pa.int64(), "bigint")}


def is_carried(schema: pa.Schema) -> bool:
    """Return whether rows of a schema can be encoded."""
    return all(_carrier(field.type) is not None for field in schema)


def carrier_ddl(schema: pa.Schema) -> str:
    """Return the columns of encoded rows as Spark DDL."""
    columns = [f"c{number} {_carried(field.type)[1]}" for number, field in enumerate(schema)]
    return ", ".join([f"{KEY} binary", f"{REPORT} binary", *columns])


def carrier_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of encoded rows."""
    columns = [(f"c{number}", _carried(field.type)[0]) for number, field in enumerate(schema)]
    return pa.schema([(KEY, pa.binary()), (REPORT, pa.binary()), *columns])


def carried_rows(table: pa.Table, keys: pa.Array) -> pa.RecordBatch:
    """Return encoded rows with their keys."""
    columns = [_to_carrier(one_array(column)) for column in table.columns]
    nothing = pa.nulls(table.num_rows, pa.binary())
    return pa.RecordBatch.from_arrays([keys, nothing, *columns], schema=carrier_schema(table.schema))


def report_row(schema: pa.Schema, report: bytes) -> pa.RecordBatch:
    """Return a report row, which has no row of the table."""
    carried = carrier_schema(schema)
    columns: Sequence[pa.Array] = [
        pa.array([b"" if field.name == KEY else report if field.name == REPORT else None], field.type)
        for field in carried
    ]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def original_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return the original rows of encoded rows."""
    columns = [_from_carrier(batch.column(f"c{number}"), field.type) for number, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _carried(kind: pa.DataType) -> tuple[pa.DataType, str]:
    carrier = _carrier(kind)
    if carrier is None:
        raise ValueError(f"a column of type {kind} cannot be sorted by Spark")
    return carrier


def _carrier(kind: pa.DataType) -> tuple[pa.DataType, str] | None:
    types = pa.types
    if types.is_boolean(kind):
        return pa.bool_(), "boolean"
    if is_text_or_bytes(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        return pa.binary(), "binary"
    return _WIDTHS.get(kind.bit_width) if types.is_primitive(kind) else None


def _to_carrier(array: pa.Array) -> pa.Array:
    kind, carrier = array.type, _carried(array.type)[0]
    if pa.types.is_decimal(kind):
        array = array.view(pa.binary(kind.byte_width))
    if pa.types.is_binary(carrier):
        return array.cast(carrier)
    return array if kind == carrier else array.view(carrier)


def _from_carrier(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        return array.cast(pa.binary(kind.byte_width)).view(kind)
    if pa.types.is_binary(array.type):
        return array.cast(kind)
    return array if array.type == kind else array.view(kind)
