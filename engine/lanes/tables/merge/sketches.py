"""Sketches that count distinct values: theta sketches of the Apache DataSketches library, in one form for one set.

A sketch here is always the result of a union: the hashes below its theta, at most K of them, ordered. That form
depends only on the set of values, not on the order or the grouping they were counted in, so that rolling up again gives
the same bytes. Spark (``theta_sketch_estimate``) and DuckDB's extension read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import datasketches
import pyarrow as pa

from engine.core.errors import LithifyError

LG_K = 12
"""Binary logarithm of the values kept; the estimate errs by about 1.6 % (one standard deviation)."""
_WHOLE_MAX = float(1 << 53)


class BadSketch(LithifyError):
    """Bytes that should be a sketch are none."""

    code = "bad_sketch"


def sketch_of(values: Iterable[Any]) -> bytes:
    """Return the sketch of values; nulls do not count. A whole number counts the same as a float of its value."""
    sketch = datasketches.update_theta_sketch(LG_K)
    for value in values:
        if value is not None:
            sketch.update(_plain(value))
    return _result([sketch])


def union_of(sketches: Iterable[bytes | None]) -> bytes:
    """Return the sketch of all values of sketches. Raises BadSketch."""
    return _result([opened(data) for data in sketches if data is not None])


def estimate(data: bytes) -> float:
    """Return about how many distinct values a sketch has seen. Raises BadSketch."""
    return float(opened(data).get_estimate())


def opened(data: bytes) -> Any:
    """Return the library's sketch. Raises BadSketch."""
    try:
        return datasketches.compact_theta_sketch.deserialize(data)
    except (ValueError, RuntimeError, IndexError, MemoryError) as error:
        raise BadSketch(f"{len(data)} bytes are no sketch: {error}") from error


def countable(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Return a column as values that ``sketch_of`` takes, None for a type whose values it cannot count."""
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
    plain = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_string(kind)
    return column if plain or types.is_large_string(kind) or types.is_binary(kind) else None


def _plain(value: Any) -> int | float | str:
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
