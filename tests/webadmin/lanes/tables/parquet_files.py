"""Small Parquet files with rows whose times are known, for tests of tables."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from engine.storage import ObjectStore

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
FIRST_MS = 1_706_745_600_000
"""2024-02-01 00:00 UTC."""


def day(number: float) -> int:
    """Return an instant so many days after 2024-02-01."""
    return FIRST_MS + round(number * DAY_MS)


def rows_at(times_ms: Sequence[int], *, first_id: int = 0) -> pa.Table:
    """Return one row for each time: a number that grows, a host, a value."""
    count = len(times_ms)
    return pa.table(
        {
            "ts": pa.array(times_ms, pa.timestamp("ms", tz="UTC")),
            "id": pa.array(range(first_id, first_id + count), pa.int64()),
            "host": pa.array([f"host-{place % 3}" for place in range(count)]),
            "value": pa.array([float(place) for place in range(count)], pa.float64()),
        }
    )


def put_table(store: ObjectStore, path: str, table: pa.Table) -> int:
    """Write a file; return its size."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    store.put(path, buffer.getvalue())
    return len(buffer.getvalue())


def put_rows(store: ObjectStore, path: str, times_ms: Sequence[int], *, first_id: int = 0) -> int:
    """Write a file with one row for each time; return its size."""
    return put_table(store, path, rows_at(times_ms, first_id=first_id))


def put_lies(store: ObjectStore, path: str, times_ms: Sequence[int], told_ms: Sequence[int]) -> None:
    """Write a file whose footer says of its first and last time what is not so."""
    put_rows(store, path, times_ms)
    data = bytearray(store.get(path))
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = bytes(data[begin:])
    for time, told in zip((times_ms[0], times_ms[-1]), told_ms, strict=True):
        old = time.to_bytes(8, "little")
        assert old in footer
        footer = footer.replace(old, told.to_bytes(8, "little"))
    store.put(path, bytes(data[:begin]) + footer)


def put_hours(store: ObjectStore, number: int, *, hours: Iterable[int] = range(24), rows: int = 3) -> list[str]:
    """Write a file for each hour of a day; return their paths."""
    paths = []
    for hour in hours:
        path = f"day-{number:03}/hour-{hour:02}.parquet"
        first = 1000 * (24 * number + hour)
        put_rows(store, path, [day(number) + hour * HOUR_MS + 60_000 * row for row in range(rows)], first_id=first)
        paths.append(path)
    return paths


def read_ids(store: ObjectStore, paths: Iterable[str]) -> list[int]:
    """Return the ids of all rows in these files, sorted."""
    tables = [pq.read_table(io.BytesIO(store.get(path)), partitioning=None) for path in paths]
    return sorted(number for table in tables for number in table.column("id").to_pylist())
