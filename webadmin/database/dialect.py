"""The only module that knows which database it talks to, beside the fields' collations.

SQLite has one writer: a transaction of ours is IMMEDIATE, so it holds the whole database from its start and a row lock
adds nothing. PostgreSQL locks the row.
"""

from __future__ import annotations

from typing import TypeVar

from django.db import DatabaseError, OperationalError, connection, models

Row = TypeVar("Row", bound=models.Model)

_LOST_RACES = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_CLOCK_MS = {
    # clock_timestamp() moves inside a transaction; now() would be the time before the head was waited for.
    "postgresql": "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    "sqlite": "SELECT CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)",
}


def clock_ms() -> int:
    """Return the database's own clock, unix milliseconds."""
    with connection.cursor() as cursor:
        cursor.execute(_CLOCK_MS[connection.vendor])
        return int(cursor.fetchone()[0])


def locked(rows: models.QuerySet[Row]) -> models.QuerySet[Row]:
    """Lock the rows until the end of the transaction, in the order of the query set.

    Not against rows that merely refer to them: two writers that have each inserted a block into the same queue would
    otherwise wait for each other.
    """
    return rows.select_for_update(no_key=True) if connection.features.has_select_for_update else rows


def is_contention(error: DatabaseError) -> bool:
    """Say whether the same transaction can succeed when it is tried again: it lost against another writer."""
    if connection.vendor == "postgresql":
        return getattr(error.__cause__, "sqlstate", None) in _LOST_RACES
    return isinstance(error, OperationalError) and "locked" in str(error)
