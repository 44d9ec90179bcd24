"""Unification of different schemas of the files of a merge, and the cast of rows to the unified schema.

Columns are matched by name; one that a file lacks is null there. Types are widened only without loss of values; types
without a common wider type raise SchemaConflict, which names the columns and a file of each type.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from engine.formats.parquet.errors import SchemaConflict

CONFLICTS_SHOWN_MAX = 10
DECIMAL_DIGITS_MAX = 38
"""The limit of Spark and DuckDB."""
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits of signed integers by their number of bits; unsigned 64-bit integers have one more."""
_UNITS = ("s", "ms", "us", "ns")
FIELD_ID = b"PARQUET:field_id"


class _NoCommonType(Exception):
    """Two types have no common wider type."""


def unified_schema(schemas: Iterable[tuple[str, pa.Schema]]) -> pa.Schema:
    """Return a schema for the rows of all files, given as (path, schema), without dictionary types.

    Columns have the order of their first appearance. Raises SchemaConflict.
    """
    fields: dict[str, pa.Field] = {}
    origins: dict[str, str] = {}
    seen: dict[str, int] = {}
    conflicts: dict[str, str] = {}
    count = 0
    for path, schema in schemas:
        count += 1
        for field in schema:
            seen[field.name] = seen.get(field.name, 0) + 1
            plain = _plain(field)
            if (known := fields.get(field.name)) is None:
                fields[field.name], origins[field.name] = plain, path
                continue
            try:
                fields[field.name] = _common_field(known, plain)
            except _NoCommonType:
                conflicts.setdefault(
                    field.name, f"{field.name} ({known.type} in {origins[field.name]}, {field.type} in {path})"
                )
    if conflicts:
        shown = "; ".join(list(conflicts.values())[:CONFLICTS_SHOWN_MAX])
        more = f"; and {len(conflicts) - CONFLICTS_SHOWN_MAX} more" if len(conflicts) > CONFLICTS_SHOWN_MAX else ""
        raise SchemaConflict(f"columns with incompatible types: {shown}{more}")
    return pa.schema([field.with_nullable(field.nullable or seen[field.name] < count) for field in fields.values()])


def cast_batch(batch: pa.RecordBatch | pa.Table, schema: pa.Schema, path: str) -> pa.Table:
    """Return rows of a file in the unified schema. Raises SchemaConflict for a value that does not fit."""
    columns = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(position)
        try:
            columns.append(column if column.type == field.type else pc.cast(column, field.type, safe=True))
        except (pa.ArrowException, ValueError) as error:
            reason = f"column {field.name} of {path}: a value does not fit {field.type}: {error}"
            raise SchemaConflict(reason) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _plain(field: pa.Field) -> pa.Field:
    """Return a field without dictionary types, and without metadata except its Parquet field id."""
    metadata = {FIELD_ID: field.metadata[FIELD_ID]} if field.metadata and FIELD_ID in field.metadata else None
    return pa.field(field.name, _plain_type(field.type), field.nullable, metadata)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_type(kind.value_type)
    if pa.types.is_struct(kind):
        return pa.struct([_plain(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_field), _plain(kind.item_field))
    return kind


def _common_field(first: pa.Field, second: pa.Field) -> pa.Field:
    kind = first.type if first.type == second.type else _common(first.type, second.type)
    return pa.field(first.name, kind, first.nullable or second.nullable, first.metadata or second.metadata)


def _common(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    """Return the narrowest type that holds the values of both types. Raises _NoCommonType."""
    types = pa.types
    if types.is_null(first) or types.is_null(second):
        return second if types.is_null(first) else first
    for rule in (_common_number, _common_time, _common_text, _common_nested):
        kind = rule(first, second) or rule(second, first)
        if kind is not None:
            return kind
    raise _NoCommonType


def _common_number(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_integer(first) and types.is_integer(second):
        return _common_integer(first, second)
    if types.is_floating(first) and types.is_floating(second):
        return max(first, second, key=lambda kind: kind.bit_width)
    if types.is_integer(first) and types.is_floating(second):
        bits = 16 if first.bit_width <= 8 else 32 if first.bit_width <= 16 else 64
        if first.bit_width > 32:
            raise _NoCommonType
        return {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[max(bits, second.bit_width)]
    if types.is_decimal(first) and types.is_decimal(second):
        return _decimal(
            max(first.precision - first.scale, second.precision - second.scale), max(first.scale, second.scale)
        )
    if types.is_integer(first) and types.is_decimal(second):
        digits = _DIGITS[first.bit_width] + (first.bit_width == 64 and types.is_unsigned_integer(first))
        return _decimal(max(digits, second.precision - second.scale), second.scale)
    return None


def _common_integer(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    unsigned = [kind.bit_width for kind in (first, second) if pa.types.is_unsigned_integer(kind)]
    signed = [kind.bit_width for kind in (first, second) if not pa.types.is_unsigned_integer(kind)]
    if not signed:
        return first if first.bit_width >= second.bit_width else second
    bits = max([*signed, *(2 * width for width in unsigned)])
    if bits > 64:
        raise _NoCommonType
    return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]


def _decimal(whole_digits: int, scale: int) -> pa.DataType:
    if whole_digits + scale > DECIMAL_DIGITS_MAX:
        raise _NoCommonType
    return pa.decimal128(whole_digits + scale, scale)


def _common_time(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_timestamp(first) and types.is_timestamp(second):
        if (first.tz is None) != (second.tz is None):
            raise _NoCommonType  # an instant and a local time
        return pa.timestamp(_finer(first.unit, second.unit), first.tz if first.tz == second.tz else "UTC")
    if types.is_date(first) and types.is_date(second):
        return pa.date64()
    if types.is_date(first) and types.is_timestamp(second) and second.tz is None:
        return second if second.unit != "s" or types.is_date32(first) else pa.timestamp("ms")
    if types.is_time(first) and types.is_time(second):
        unit = _finer(first.unit, second.unit)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    if types.is_duration(first) and types.is_duration(second):
        return pa.duration(_finer(first.unit, second.unit))
    return None


def _finer(first: str, second: str) -> str:
    return max(first, second, key=_UNITS.index)


def _common_text(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    types = pa.types
    for of_kind, is_large, plain, large in (
        (_is_text, types.is_large_string, pa.string(), pa.large_string()),
        (_is_binary, types.is_large_binary, pa.binary(), pa.large_binary()),
    ):
        if of_kind(first) and of_kind(second):
            return large if is_large(first) or is_large(second) else plain
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _common_nested(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_struct(first) and types.is_struct(second):
        fields = {field.name: field for field in first}
        for field in second:
            known = fields.get(field.name)
            fields[field.name] = field.with_nullable(True) if known is None else _common_field(known, field)
        names = {field.name for field in second}
        return pa.struct([field if field.name in names else field.with_nullable(True) for field in fields.values()])
    if _is_list(first) and _is_list(second):
        value = _common_field(first.value_field, second.value_field)
        return pa.large_list(value) if types.is_large_list(first) or types.is_large_list(second) else pa.list_(value)
    if types.is_map(first) and types.is_map(second):
        return pa.map_(
            _common_field(first.key_field, second.key_field), _common_field(first.item_field, second.item_field)
        )
    return None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
