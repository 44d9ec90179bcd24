"""Sort keys: byte strings whose order is that of a table's rows by some of its columns.

All columns ascend; nulls come first, NaN after all other numbers, -0.0 equals 0.0, text is ordered by its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from engine.core.errors import BadObject, MergeRefused
from engine.formats.parquet.array_parts import bytes_and_offsets, fixed_bytes, is_text_or_bytes, one_array, valid_rows
from engine.lanes.tables.merge.key_arrays import HEAD_BYTES, KeyPart, Keys, fixed_offsets
from engine.lanes.tables.merge.row_order import join_parts

_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the order; ``nullable`` must be equal for all rows that are compared."""

    name: str
    kind: pa.DataType
    nullable: bool


@dataclass(frozen=True, slots=True)
class RowOrder:
    """The order of the rows of one merge."""

    columns: tuple[KeyColumn, ...]

    def keys(self, table: pa.Table) -> Keys:
        """Return the keys of a table's rows. Raises a BadObject for a null that contradicts the file's statistics."""
        columns = [one_array(table.column(column.name)) for column in self.columns]
        for column, array in zip(self.columns, columns, strict=True):
            if array.null_count and not column.nullable:
                raise BadObject(f"column {column.name}", -1, "it has a null, but its statistics state that it has none")
        if len(columns) == 1 and not self.columns[0].nullable and (words := _words(columns[0])) is not None:
            return Keys(words, np.zeros(0, np.uint8), np.zeros(0, np.int64))
        parts = [_part(array, column.nullable) for array, column in zip(columns, self.columns, strict=True)]
        return join_parts(table.num_rows, parts)


def row_order(schema: pa.Schema, columns: Sequence[str], never_null: frozenset[str]) -> RowOrder:
    """Return the order by columns of a schema; missing ones are ignored. Raises MergeRefused for nested columns."""
    found: dict[str, KeyColumn] = {}
    for name in columns:
        if name in found or name not in schema.names:
            continue
        kind = schema.field(name).type
        if pa.types.is_null(kind):
            continue
        if not is_sortable(kind):
            raise MergeRefused(f"rows cannot be sorted by column {name}: its type is {kind}")
        found[name] = KeyColumn(name, kind, name not in never_null)
    return RowOrder(tuple(found.values()))


def is_sortable(kind: pa.DataType) -> bool:
    """Return whether rows can be sorted by a column of this type."""
    types = pa.types
    return bool(
        is_text_or_bytes(kind)
        or types.is_boolean(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_decimal(kind)
        or types.is_primitive(kind)
    )


def numbered_keys(keys: Keys, file: int, row: int) -> pa.Array:
    """Return keys made unique within a merge by appending file and row number, counted from ``row``."""
    count = len(keys)
    offsets, data = keys.offsets, keys.data
    if not len(offsets):
        offsets, data = fixed_offsets(count, HEAD_BYTES), keys.heads.astype(">u8").view(np.uint8)
    ends = np.empty((count, 2), ">u8")
    ends[:, 0], ends[:, 1] = file, np.arange(row, row + count)
    suffix = KeyPart(ends.reshape(-1).view(np.uint8), fixed_offsets(count, 16), None, False)
    joined = join_parts(count, [KeyPart(data, offsets, None, False), suffix])
    buffers = [None, pa.py_buffer(joined.offsets), pa.py_buffer(joined.data)]
    return pa.Array.from_buffers(pa.large_binary(), count, buffers).cast(pa.binary())


def _words(array: pa.Array) -> npt.NDArray[np.uint64] | None:
    """Return values of at most eight bytes as numbers of the same order, None for other types."""
    types, kind = pa.types, array.type
    if types.is_boolean(kind):
        return np.asarray(array.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False), np.uint64)
    if types.is_floating(kind):
        # Adding 0.0 makes -0.0 positive; all NaNs get the same bits.
        numbers = array.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.uint64)
        ordered: npt.NDArray[np.uint64] = np.where(bits & _SIGN, ~bits, bits | _SIGN)
        return ordered
    if not types.is_primitive(kind):
        return None
    if types.is_unsigned_integer(kind):
        return np.asarray(array.cast(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False))
    whole = array if types.is_integer(kind) else array.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    signed = np.asarray(whole.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    words: npt.NDArray[np.uint64] = signed.view(np.uint64) ^ _SIGN
    return words


def _part(array: pa.Array, nullable: bool) -> KeyPart:
    valid = valid_rows(array) if nullable else None
    if is_text_or_bytes(array.type):
        data, offsets = bytes_and_offsets(array)
        return KeyPart(data, offsets, valid, True)
    words = _words(array)
    if words is not None:
        data = words.astype(">u8").view(np.uint8)
        return KeyPart(data, fixed_offsets(len(array), HEAD_BYTES), valid, False)
    rows = fixed_bytes(array)
    if pa.types.is_decimal(array.type):
        rows = rows[:, ::-1].copy()
        rows[:, 0] ^= 0x80
    return KeyPart(np.ascontiguousarray(rows).reshape(-1), fixed_offsets(len(array), rows.shape[1]), valid, False)
