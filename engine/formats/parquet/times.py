"""Conversion of time columns of any type to Unix milliseconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_MS = 86_400_000

Int64s = npt.NDArray[np.int64]


class NoTimeType(ValueError):
    """The type of a column cannot be converted to a time."""


def to_milliseconds(kind: pa.DataType, unit: str) -> Callable[[int], int]:
    """Return a function from a stored number to Unix milliseconds, rounded down.

    ``unit`` is the unit of integer columns. Raises NoTimeType.
    """
    multiply, divide = scale_of(kind, unit)
    return lambda value: value * multiply // divide


def scale_of(kind: pa.DataType, unit: str) -> tuple[int, int]:
    """Return the multiplier and the divisor from stored numbers to Unix milliseconds. Raises NoTimeType."""
    if pa.types.is_date32(kind):
        return DAY_MS, 1
    if pa.types.is_date64(kind):
        return 1, 1
    if pa.types.is_timestamp(kind):
        per_second = PER_SECOND[kind.unit]
    elif pa.types.is_integer(kind) and unit in PER_SECOND:
        per_second = PER_SECOND[unit]
    elif pa.types.is_integer(kind):
        raise NoTimeType(f"its type is {kind}, and its unit is not configured")
    else:
        raise NoTimeType(f"its type is {kind}; expected a timestamp, a date or an integer")
    return (1_000 // per_second, 1) if per_second <= 1_000 else (1, per_second // 1_000)


def stored_numbers(array: pa.Array) -> Int64s:
    """Return the stored numbers of a time column, 0 for nulls."""
    kind = array.type
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif not pa.types.is_integer(kind):
        array = array.view(pa.int64())
    if array.null_count:
        array = pc.fill_null(array, 0)
    numbers: Int64s = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return numbers


def time_bounds(column: pa.Array | pa.ChunkedArray, unit: str) -> tuple[int, int] | None:
    """Return the minimum and maximum of a column in Unix milliseconds, rounded down; None if it has no value."""
    found = pc.min_max(column)
    if not found["min"].is_valid:
        return None
    low, high = milliseconds(pa.array([found["min"], found["max"]], column.type), unit).tolist()
    return low, high


def milliseconds(array: pa.Array, unit: str) -> Int64s:
    """Return a time column in Unix milliseconds, rounded down, 0 for nulls; values beyond 64 bits are clamped."""
    multiply, divide = scale_of(array.type, unit)
    numbers = stored_numbers(array)
    if divide > 1:
        return numbers // divide
    edge = np.iinfo(np.int64)
    return np.clip(numbers, edge.min // multiply + 1, edge.max // multiply) * multiply
