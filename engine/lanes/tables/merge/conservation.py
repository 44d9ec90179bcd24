"""Verify that a merge wrote the rows that it read: row counts, sums of row hashes, and exact column sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.formats.parquet.array_parts import bytes_and_offsets, fixed_bytes, is_text_or_bytes, one_array, valid_rows
from engine.formats.parquet.errors import NotConserved
from engine.lanes.tables.merge.row_hashes import add_bytes, add_lists, add_words

Words = npt.NDArray[np.uint64]
_NULL = np.uint64(0x6C62272E07BB0142)
"""Represents a null among the values of a column."""
_LOW_32 = (1 << 32) - 1


@dataclass(slots=True)
class Tally:
    """Order-independent totals of rows of one schema, on one side of a merge.

    ``hashes`` is the sum of the hashes of whole rows modulo 2^64, None if rows are not compared. ``sums`` are the exact
    sums of the columns in ``summed``, in units of the last digit; ``summed`` maps each column to its decimal places.
    """

    summed: Mapping[str, int]
    rows: int = 0
    hashes: int | None = 0
    sums: dict[str, int] = field(default_factory=dict)

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self.rows += table.num_rows
        if self.hashes is not None:
            self.hashes = (self.hashes + int(hash_rows(table).sum(dtype=np.uint64))) % (1 << 64)
        for name in self.summed:
            self.sums[name] = self.sums.get(name, 0) + exact_sum(table.column(name))

    def empty(self) -> Tally:
        """Return an empty tally of the same columns."""
        return Tally(self.summed, hashes=None if self.hashes is None else 0)

    def include(self, other: Tally) -> None:
        """Add another tally."""
        self.rows += other.rows
        if self.hashes is not None and other.hashes is not None:
            self.hashes = (self.hashes + other.hashes) % (1 << 64)
        for name in self.summed:
            self.sums[name] = self.sums.get(name, 0) + other.sums.get(name, 0)

    def sums_text(self) -> dict[str, str]:
        """Return the sums as text."""
        return {name: _with_point(self.sums.get(name, 0), scale) for name, scale in self.summed.items()}


def check_conserved(read: Tally, written: Tally, what: str) -> None:
    """Compare the two sides of a merge. Raises NotConserved, naming ``what``."""
    if read.hashes is not None and read.rows != written.rows:
        raise NotConserved(f"{what}: {read.rows} rows read, {written.rows} rows written")
    if read.hashes != written.hashes:
        raise NotConserved(f"{what}: the rows written differ from the rows read")
    for name in read.summed:
        before, after = read.sums.get(name, 0), written.sums.get(name, 0)
        if before != after:
            raise NotConserved(f"{what}: the sum of column {name} is {before} before and {after} after")


def summable(schema: pa.Schema, but: Iterable[str] = ()) -> dict[str, int]:
    """Return the integer and decimal columns with their decimal places."""
    types, left_out = pa.types, set(but)
    return {
        column.name: column.type.scale if types.is_decimal(column.type) else 0
        for column in schema
        if column.name not in left_out and (types.is_integer(column.type) or types.is_decimal(column.type))
    }


def exact_sum(column: pa.Array | pa.ChunkedArray) -> int:
    """Return the sum of an integer or decimal column, in units of the last digit; nulls are ignored."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    add = _decimal_units if pa.types.is_decimal(column.type) else _whole_sum
    return sum(add(chunk) for chunk in chunks)


def _with_point(units: int, scale: int) -> str:
    if scale <= 0:
        return str(units * 10**-scale)
    digits = str(abs(units)).zfill(scale + 1)
    return f"{'-' if units < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _whole_sum(array: pa.Array) -> int:
    signed = not pa.types.is_unsigned_integer(array.type)
    numbers = array.cast(pa.int64() if signed else pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
    # Sums of 32-bit halves fit into 64 bits for any possible array length.
    return (int((numbers >> 32).sum()) << 32) + int((numbers & _LOW_32).sum())


def _decimal_units(array: pa.Array) -> int:
    """Return the sum of decimals in units of their last digit."""
    width = array.type.byte_width
    words = fixed_bytes(array).copy()
    if array.null_count:
        words[valid_rows(array) == 0] = 0
    total = 0
    for place in range(0, width, 4):
        part = words[:, place : place + 4].copy().view("<i4" if place + 4 == width else "<u4")
        total += int(part.sum(dtype=np.int64)) << (8 * place)
    return total


def hash_rows(table: pa.Table) -> Words:
    """Return a hash of each row over all its values, in column order."""
    hashes = np.zeros(table.num_rows, np.uint64)
    for column in table.columns:
        _add_column(hashes, one_array(column))
    return hashes


def _add_column(hashes: Words, array: pa.Array) -> None:
    types, kind = pa.types, array.type
    if isinstance(array, pa.ExtensionArray):
        return _add_column(hashes, array.storage)
    if types.is_null(kind):
        return None
    if is_text_or_bytes(kind):
        return _add_text(hashes, array)
    if types.is_struct(kind):
        add_words(hashes, np.where(valid_rows(array) == 1, np.uint64(0), _NULL))
        for child in array.flatten():
            _add_column(hashes, child)
        return None
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind) or types.is_fixed_size_list(kind):
        return _add_lists(hashes, array)
    if types.is_boolean(kind):
        array = array.cast(pa.uint8())
    return _add_fixed(hashes, array)


def _add_text(hashes: Words, array: pa.Array) -> None:
    nulls = np.flatnonzero(valid_rows(array) == 0) if array.null_count else None
    before = None if nulls is None else hashes[nulls]
    add_bytes(hashes, *bytes_and_offsets(array))
    if before is not None:
        # A null differs from an empty text, and its hash must not depend on the bytes stored for it.
        add_words(before, np.full(len(before), _NULL))
        hashes[nulls] = before


def _add_fixed(hashes: Words, array: pa.Array) -> None:
    """Mix in values of a fixed width, eight bytes at a time."""
    rows = fixed_bytes(array)
    width = rows.shape[1]
    padded = -(-width // 8) * 8
    if padded != width:
        wide = np.zeros((len(rows), padded), np.uint8)
        wide[:, :width] = rows
        rows = wide
    words = np.ascontiguousarray(rows).view(np.uint64).reshape(len(rows), padded // 8)
    for place in range(words.shape[1]):
        column = words[:, place]
        if array.null_count:
            column = np.where(valid_rows(array) == 1, column, _NULL)
        add_words(hashes, np.ascontiguousarray(column))


def _add_lists(hashes: Words, array: pa.Array) -> None:
    types = pa.types
    add_words(hashes, np.where(valid_rows(array) == 1, np.uint64(0), _NULL))
    if types.is_map(array.type):
        array = array.cast(pa.list_(pa.struct([array.type.key_field, array.type.item_field])))
    values = array.flatten()  # without the values of null lists
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    elements = np.zeros(len(values), np.uint64)
    _add_column(elements, values)
    add_lists(hashes, elements, offsets)
