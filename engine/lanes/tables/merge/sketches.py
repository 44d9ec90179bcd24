"""Sketches that count distinct values: theta sketches of Apache DataSketches, in a canonical form.

A sketch here is always the result of a union: the ordered hashes below its theta, at most K of them. This form depends
only on the set of values, not on the order or grouping of counting, so repeated roll-ups give equal bytes. Spark
(``theta_sketch_estimate``) and DuckDB's extension can read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import datasketches
import pyarrow as pa

from engine.core.errors import LithifyError

LG_K = 12
"""Binary logarithm of the number of values kept; the standard error of the estimate is about 1.6 %."""
_WHOLE_MAX = float(1 << 53)


class BadSketch(LithifyError):
    """The bytes are not a sketch."""

    code = "bad_sketch"


def sketch_of(values: Iterable[Any]) -> bytes:
    """Return the sketch of values; nulls are ignored. An integer and a float of the same value count as one."""
    sketch = datasketches.update_theta_sketch(LG_K)
    for value in values:
        if value is not None:
            sketch.update(_canonical_value(value))
    return _result([sketch])


def union_of(sketches: Iterable[bytes | None]) -> bytes:
    """Return the union of sketches. Raises BadSketch."""
    return _result([deserialize_sketch(data) for data in sketches if data is not None])


def estimate(data: bytes) -> float:
    """Return the estimated number of distinct values of a sketch. Raises BadSketch."""
    return float(deserialize_sketch(data).get_estimate())


def deserialize_sketch(data: bytes) -> Any:
    """Return the deserialized sketch. Raises BadSketch."""
    try:
        return datasketches.compact_theta_sketch.deserialize(data)
    except (ValueError, RuntimeError, IndexError, MemoryError) as error:
        raise BadSketch(f"{len(data)} bytes are not a sketch: {error}") from error


def countable_values(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a column in a form that ``sketch_of`` accepts, None for unsupported types."""
    types, kind = pa.types, column.type
    if types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.int64())
    if types.is_date(kind):
        return column.cast(pa.date32()).cast(pa.int32())
    if types.is_time(kind) or types.is_duration(kind):
        target = pa.time64("us") if types.is_time(kind) else pa.duration("us")
        return column.cast(target, safe=False).cast(pa.int64())
    if types.is_boolean(kind):
        return column.cast(pa.int8())
    is_supported = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_string(kind)
    return column if is_supported or types.is_large_string(kind) or types.is_binary(kind) else None


def _canonical_value(value: Any) -> int | float | str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        value = value.normalize()
        return str(value)
    if isinstance(value, float) and value.is_integer() and abs(value) <= _WHOLE_MAX:
        return int(value)
    if isinstance(value, int) and value > (1 << 63) - 1:
        return str(value)
    return value  # type: ignore[no-any-return]


def _result(sketches: Iterable[Any]) -> bytes:
    union = datasketches.theta_union(LG_K)
    for sketch in sketches:
        union.update(sketch)
    return bytes(union.get_result().serialize())
