"""The only module that knows which database it talks to, beside the fields' collations.

SQLite has one writer: a transaction of ours is IMMEDIATE, so it holds the whole database from its start and a row lock
adds nothing. PostgreSQL locks the row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

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


def reserve_ids(model: type[models.Model], count: int) -> list[int]:
    """Return row ids that nobody else will get. Call it in the transaction that inserts the rows."""
    table = model._meta.db_table
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            sequence = "SELECT nextval(pg_get_serial_sequence(%s, 'id')) FROM generate_series(1, %s)"
            cursor.execute(sequence, [table, count])
            return [int(row[0]) for row in cursor.fetchall()]
        assert connection.in_atomic_block, "the one writer of SQLite is who has begun"
        cursor.execute("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])
        last = int((cursor.fetchone() or [0])[0])
    return list(range(last + 1, last + 1 + count))


def continue_ids(model: type[models.Model], column: str, last: int) -> None:
    """Let the next id that the database gives be behind ``last``, which somebody wrote himself."""
    if connection.vendor == "postgresql":  # SQLite looks at the rows
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [model._meta.db_table, column, last])


def insert_rows(model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert many rows of plain values at a fifth of what model instances cost; nothing is checked or defaulted."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            names = ", ".join(_quoted(columns))
            with cursor.copy(f"COPY {_quoted([model._meta.db_table])[0]} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            cursor.executemany(_insert(model, columns, "INSERT"), rows)


def insert_new_rows(model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert those of the rows that break no unique constraint; wait for others that are about to insert the same."""
    if not rows:
        return
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            table, names = _quoted([model._meta.db_table])[0], ", ".join(_quoted(columns))
            arrays = ", ".join(f"%s::{kind}[]" for kind in _kinds(model, columns))
            cursor.execute(
                f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING",  # noqa: S608
                [list(values) for values in zip(*rows, strict=True)],
            )
        else:
            cursor.executemany(_insert(model, columns, "INSERT OR IGNORE"), rows)


def _insert(model: type[models.Model], columns: Sequence[str], verb: str) -> str:
    marks = ", ".join(["%s"] * len(columns))
    return f"{verb} INTO {_quoted([model._meta.db_table])[0]} ({', '.join(_quoted(columns))}) VALUES ({marks})"


def _kinds(model: type[models.Model], columns: Iterable[str]) -> list[str]:
    fields = {field.column: field for field in model._meta.concrete_fields}
    return [(fields[column].rel_db_type(connection) or "").partition("(")[0] for column in columns]


def _quoted(names: Iterable[str]) -> list[str]:
    return [connection.ops.quote_name(name) for name in names]
