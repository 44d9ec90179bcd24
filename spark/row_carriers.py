"""Arrow rows as Spark can carry them through a sort without changing a bit, and back.

Spark has no unsigned numbers, no nanoseconds and no fixed-size bytes, and touches NaNs; so every column travels as
whole numbers of its width or as bytes. Nested columns are not carried.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from engine.formats.parquet.array_parts import is_text_or_bytes, one_array

KEY = "key"
TOLD = "told"
"""Column of what a task has to say beside its rows; such a row has an empty key, and comes first."""
_WIDTHS = {8: (pa.int8(), "tinyint"), 16: (pa.int16(), "smallint"), 32: (pa.int32(), "int"), 64: (pa.int64(), "bigint")}


def is_carried(schema: pa.Schema) -> bool:
    """Tell whether rows of a schema can be carried."""
    return all(_carrier(field.type) is not None for field in schema)


def carrier_ddl(schema: pa.Schema) -> str:
    """Return the columns of carried rows as Spark writes them."""
    columns = [f"c{number} {_carried(field.type)[1]}" for number, field in enumerate(schema)]
    return ", ".join([f"{KEY} binary", f"{TOLD} binary", *columns])


def carrier_schema(schema: pa.Schema) -> pa.Schema:
    """Return the Arrow schema of carried rows."""
    columns = [(f"c{number}", _carried(field.type)[0]) for number, field in enumerate(schema)]
    return pa.schema([(KEY, pa.binary()), (TOLD, pa.binary()), *columns])


def carried_rows(table: pa.Table, keys: pa.Array) -> pa.RecordBatch:
    """Return rows in the form that Spark carries, with their keys."""
    columns = [_to_carrier(one_array(column)) for column in table.columns]
    nothing = pa.nulls(table.num_rows, pa.binary())
    return pa.RecordBatch.from_arrays([keys, nothing, *columns], schema=carrier_schema(table.schema))


def told_row(schema: pa.Schema, told: bytes) -> pa.RecordBatch:
    """Return a row that carries no row of the table."""
    carried = carrier_schema(schema)
    columns: Sequence[pa.Array] = [
        pa.array([b"" if field.name == KEY else told if field.name == TOLD else None], field.type) for field in carried
    ]
    return pa.RecordBatch.from_arrays(columns, schema=carried)


def original_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.Table:
    """Return carried rows as they were."""
    columns = [_from_carrier(batch.column(f"c{number}"), field.type) for number, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def _carried(kind: pa.DataType) -> tuple[pa.DataType, str]:
    carrier = _carrier(kind)
    if carrier is None:
        raise ValueError(f"a column of type {kind} cannot be carried")
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
