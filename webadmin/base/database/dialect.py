"""The only module with code per database, except for the collations of fields.

SQLite has one writer: our transactions are IMMEDIATE, so each locks the whole database from its start and a row lock
has no effect. PostgreSQL locks rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, OperationalError, connection, connections, models, transaction
from django.db.backends.utils import CursorWrapper
from django.db.models.base import ModelState

Row = TypeVar("Row", bound=models.Model)

KEYS_PER_SELECT = 100
"""SQLite joins up to 500 selects."""
ROWS_PER_INSERT = 32
"""Up to this number of rows INSERT is faster than COPY; with thirty values each they are within SQLite's old limit."""
ROWS_PER_UPDATE = 500
"""This number of rows with ten values each is well within the databases' limits for one statement."""

PREPARE_AFTER = 5
"""A connection prepares a statement after this number of executions."""

Answer = Callable[[], list[tuple[Any, ...]]]
"""Returns the requested rows, once. A call after the block of ``together`` does not wait."""

_LOST_RACES = {"40001", "40P01", "55P03"}  # serialization failure, deadlock, lock not available
_CLOCK_MS = {
    # clock_timestamp() advances inside a transaction; now() would be the time before the wait for the head.
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)",
}


@functools.cache
def is_postgresql() -> bool:
    """Return whether the database is PostgreSQL. Cached: a look-up per statement takes longer than some statements."""
    return connection.vendor == "postgresql"


def prepared_cursor() -> CursorWrapper:
    """Return a cursor for the few statements that are executed again and again: PostgreSQL caches their plans.

    A cached plan knows no values, so the condition of a partial index must be in the text itself.
    """
    here = connections[DEFAULT_DB_ALIAS]  # what ``connection`` looks up again for each of its attributes
    if not is_postgresql():
        return here.cursor()
    if here.connection is None:
        here.ensure_connection()
    here.connection.prepare_threshold = PREPARE_AFTER
    return here.make_cursor(psycopg.Cursor(here.connection))  # type: ignore[arg-type]  # takes what it wraps


def execute_deferred(statement: str, values: Sequence[Any] = ()) -> Answer:
    """Send a reading statement; the returned callable fetches the rows."""
    cursor = prepared_cursor()
    cursor.execute(statement, list(values))
    if is_postgresql():
        fetch: Answer = cursor.fetchall
        return fetch
    rows = cursor.fetchall()  # on SQLite, read at once: an open result holds a read lock
    return lambda: rows


def clock_column() -> str:
    """Return the database's own clock, unix milliseconds, as a column of a statement that reads."""
    return _CLOCK_MS[connection.vendor]


def clock_ms() -> int:
    """Return the database's own clock, unix milliseconds."""
    return int(execute_deferred(f"SELECT {clock_column()}")()[0][0])


@contextmanager
def one_snapshot() -> Iterator[None]:
    """Run all statements inside, which may only read, on one snapshot; inside of a transaction it has no effect."""
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "postgresql":
        with transaction.atomic(), prepared_cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield
    else:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")  # unlike a transaction of Django's it does not take SQLite's write lock
            try:
                yield
            finally:
                cursor.execute("COMMIT")


def locked(rows: models.QuerySet[Row]) -> models.QuerySet[Row]:
    """Lock the rows until the end of the transaction, in the sort order of the query set.

    The lock does not conflict with rows that reference them: two writers that have each inserted a block into the same
    queue would otherwise deadlock.
    """
    return rows.select_for_update(no_key=True) if is_postgresql() else rows


def share_lock() -> str:
    """Return the end of a SELECT, also in a subquery, that locks its rows in share mode until the transaction ends."""
    return " FOR SHARE" if is_postgresql() else ""


def lock_row(model: type[models.Model], *, commits_early: bool = False) -> None:
    """Lock the one row of this table until the end of the transaction.

    With ``commits_early`` the transaction releases its locks before its commit is durable: later commits are durable no
    earlier, but the commit may not be acknowledged before ``wait_for_disk``.
    """
    if is_postgresql():
        what = "set_config('synchronous_commit', 'off', true)" if commits_early else "1"
        with prepared_cursor() as cursor:
            cursor.execute(f"SELECT {what} FROM {quoted([model._meta.db_table])[0]} FOR NO KEY UPDATE")  # noqa: S608


def wait_for_disk() -> None:
    """Wait until all earlier commits, of any process, are as durable as the server's settings require."""
    if is_postgresql():
        with prepared_cursor() as cursor:  # commits a log message, also in pipeline mode
            cursor.execute("SELECT pg_logical_emit_message(true, 'lithify', '')")


@contextmanager
def pipeline() -> Iterator[None]:
    """Send statements to PostgreSQL in pipeline mode, without waiting for each result.

    They still run one after the other. Reading rows waits for everything sent so far; the number of rows that a
    statement changed is not available inside. Errors are raised there or at the end. Outside of a transaction only
    reads are allowed.
    """
    if not is_postgresql() or _is_pipelined():
        yield
        return
    here = connections[DEFAULT_DB_ALIAS]
    here.ensure_connection()
    with here.wrap_database_errors, here.connection.pipeline():
        yield


def _is_pipelined() -> bool:
    """Return whether the connection is in pipeline mode, in which COPY is not available."""
    open_one = connections[DEFAULT_DB_ALIAS].connection if is_postgresql() else None
    return open_one is not None and bool(open_one.pgconn.pipeline_status)


def is_contention(error: DatabaseError) -> bool:
    """Return whether the same transaction can succeed when it is retried: it lost against another writer."""
    if is_postgresql():
        return getattr(error.__cause__, "sqlstate", None) in _LOST_RACES
    return isinstance(error, OperationalError) and "locked" in str(error)


def request_ids(model: type[models.Model], count: int, *, wait_ms: int = 0) -> Callable[[], list[int]]:
    """Request row ids that no other transaction gets. Call it in the transaction that inserts the rows.

    With ``wait_ms`` further statements of the transaction wait at most this long for a lock: then they fail with a
    contention error. SQLite has a single writer and ignores it.
    """
    table = model._meta.db_table
    if is_postgresql():
        ids, values = "nextval(pg_get_serial_sequence(%s, %s))", [table, model._meta.pk.column]
        if wait_ms:
            ids, values = f"{ids}, set_config('lock_timeout', %s, true)", [*values, str(wait_ms)]
        fetch = execute_deferred(f"SELECT {ids} FROM generate_series(1, %s)", [*values, count])  # noqa: S608
        return lambda: [int(row[0]) for row in fetch()]
    assert connection.in_atomic_block, "the one writer of SQLite is who has begun"
    rows = execute_deferred("SELECT seq FROM sqlite_sequence WHERE name = %s", [table])()
    last = int(rows[0][0]) if rows else 0
    return lambda: list(range(last + 1, last + 1 + count))


def request_ids_early(model: type[models.Model], count: int) -> Callable[[], list[int]]:
    """Request row ids as ``request_ids`` before the inserting transaction; SQLite cannot and returns none."""
    return request_ids(model, count) if count and is_postgresql() else list


def reserve_ids(model: type[models.Model], count: int, *, wait_ms: int = 0) -> list[int]:
    """Return row ids that no other transaction gets; see ``request_ids``."""
    return request_ids(model, count, wait_ms=wait_ms)()


def continue_ids(model: type[models.Model], column: str, last: int) -> None:
    """Advance the sequence of ids past ``last``, an id that was written explicitly."""
    if is_postgresql():  # SQLite uses the largest id of the rows
        with connection.cursor() as cursor:
            cursor.execute("SELECT setval(pg_get_serial_sequence(%s, %s), %s)", [model._meta.db_table, column, last])


def read_rows(
    model: type[models.Model], columns: Sequence[str], rest: str, values: Sequence[Any] = (), *, lock: bool = False
) -> list[tuple[Any, ...]]:
    """Return the result of ``request_rows``."""
    return request_rows(model, columns, rest, values, lock=lock)()


def request_rows(
    model: type[models.Model], columns: Sequence[str], rest: str, values: Sequence[Any] = (), *, lock: bool = False
) -> Answer:
    """Request these columns of the rows that ``rest`` (``WHERE`` and so on, with placeholders for ``values``) selects.

    For the reads of every poll: building a query set takes longer than the database needs to answer. Values are as the
    database returns them: JSON as text, on SQLite booleans as numbers and times as text. ``lock`` is as for ``locked``.
    """
    ending = " FOR NO KEY UPDATE" if lock and is_postgresql() else ""
    return execute_deferred(f"{_select(model, (*columns,))} {rest}{ending}", values)


def as_instance(model: type[Row], columns: Sequence[str], row: Sequence[Any]) -> Row:
    """Return a row as an instance of its model, as ``from_db`` does, without subclasses, defaults and signals.

    A poll reads dozens of rows, and most of them are accessed once.
    """
    made = model.__new__(model)
    made.__dict__.update(zip(columns, row, strict=True))
    made._state = ModelState()
    made._state.adding, made._state.db = False, DEFAULT_DB_ALIAS
    return made


@functools.cache
def _select(model: type[models.Model], columns: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(quoted(columns))} FROM {quoted([model._meta.db_table])[0]}"  # noqa: S608


def among(model: type[models.Model], column: str, values: Collection[Any]) -> tuple[str, list[Any]]:
    """Return the condition that a column has one of these values (at least one), and the values of its placeholders.

    On PostgreSQL the text does not depend on the number of values, so the statement's plan is cached.
    """
    name = quoted([column])[0]
    if is_postgresql():
        return f"{name} = ANY(%s::{_kinds(model, (column,))[0]}[])", [_array(list(values))]
    return f"{name} IN {_marks(values)}", list(values)


def _marks(values: Collection[Any]) -> str:
    return f"({', '.join(['%s'] * len(values))})"


def insert_and_number(
    model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]], *, number: str, key: str
) -> dict[Any, int]:
    """Insert rows of plain values; return the generated number of each, by its ``key``."""
    if not rows:
        return {}
    with prepared_cursor() as cursor:
        sql = f"{insert_statement(model, columns, 'INSERT', len(rows))} RETURNING {', '.join(quoted([key, number]))}"
        cursor.execute(sql, table_values(rows))
        return {key: int(number) for key, number in cursor.fetchall()}


def time_value(at: datetime) -> Any:
    """Return a point in time as a plain value of a row."""
    return connection.ops.adapt_datetimefield_value(at)


def first_rows(
    model: type[models.Model],
    columns: Sequence[str],
    condition: str,
    order: str,
    keys: Sequence[tuple[Sequence[Any], int]],
) -> list[list[tuple[Any, ...]]]:
    """Return the result of ``request_first_rows``."""
    return request_first_rows(model, columns, condition, order, keys)()


def request_first_rows(
    model: type[models.Model],
    columns: Sequence[str],
    condition: str,
    order: str,
    keys: Sequence[tuple[Sequence[Any], int]],
) -> Callable[[], list[list[tuple[Any, ...]]]]:
    """Request the first rows of each of many keys in few statements.

    A key is the values of the placeholders in ``condition``, and the maximum number of its rows.
    """
    rows, fetches = _select(model, (*columns,)), []
    if keys and is_postgresql():  # one text, and so one cached plan, for any number of keys
        table = [(place, limit, *own) for place, (own, limit) in enumerate(keys)]
        kinds = tuple("varchar" if isinstance(value, str) else "bigint" for value in table[0])
        fetches = [execute_deferred(_first_of_each(rows, condition, order, kinds), table_values(table))]
    else:
        part = f"SELECT * FROM (SELECT %s AS place, * FROM ({rows} WHERE {condition} ORDER BY {order} LIMIT %s))"  # noqa: S608
        for start in range(0, len(keys), KEYS_PER_SELECT):
            chunk = keys[start : start + KEYS_PER_SELECT]
            values = [v for place, (own, limit) in enumerate(chunk, start) for v in (place, *own, limit)]
            fetches.append(execute_deferred(" UNION ALL ".join([part] * len(chunk)), values))

    def answer() -> list[list[tuple[Any, ...]]]:
        found: list[list[tuple[Any, ...]]] = [[] for _ in keys]
        for rows in fetches:
            for row in rows():
                found[row[0]].append(row[1:])
        return found

    return answer


@functools.cache
def _first_of_each(rows: str, condition: str, order: str, kinds: tuple[str, ...]) -> str:
    """Return the statement that selects the first ``rows`` for each row of a table of position, count and key."""
    arrays = ", ".join(f"%s::{kind}[]" for kind in kinds)
    keys = [f"key{number}" for number in range(len(kinds) - 2)]
    for key in keys:
        condition = condition.replace("%s", f"wanted.{key}", 1)
    return (
        f"SELECT wanted.place, part.* FROM unnest({arrays}) AS wanted ({', '.join(['place', 'most', *keys])}) "  # noqa: S608
        f"CROSS JOIN LATERAL ({rows} WHERE {condition} ORDER BY {order} LIMIT wanted.most) AS part"
    )


def raise_rows(
    model: type[models.Model], keys: Sequence[str], columns: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Raise monotonic values: each of ``rows`` has those of the unique ``keys``, then those of ``columns``.

    A missing row is inserted; its other columns get the defaults of the model.
    """
    if not rows:
        return
    names = [*keys, *columns]
    rest = [f for f in model._meta.concrete_fields if not f.primary_key and f.column not in names]
    others = {str(f.column): f.get_default() for f in rest}
    grown = [
        f"{name} = CASE WHEN excluded.{name} > held.{name} THEN excluded.{name} ELSE held.{name} END"
        for name in quoted(columns)
    ]
    insert = insert_statement(model, [*names, *others], "INSERT", len(rows))
    with prepared_cursor() as cursor:
        cursor.execute(
            f"{insert} ON CONFLICT ({', '.join(quoted(keys))}) DO UPDATE SET {', '.join(grown)}",
            table_values([(*row, *others.values()) for row in rows]),
        )


def insert_rows(model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert many rows of plain values at a fifth of the cost of model instances, without validation or defaults."""
    if not rows:
        return
    with prepared_cursor() as cursor:
        if len(rows) <= ROWS_PER_INSERT or _is_pipelined():
            cursor.execute(insert_statement(model, columns, "INSERT", len(rows)), table_values(rows))
        elif is_postgresql():
            names = ", ".join(quoted(columns))
            with cursor.copy(f"COPY {quoted([model._meta.db_table])[0]} ({names}) FROM STDIN") as copy:
                for row in rows:
                    copy.write_row(row)
        else:
            cursor.executemany(insert_statement(model, columns, "INSERT"), rows)


def insert_new_rows(model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert the rows that violate no unique constraint; wait for concurrent inserts of the same keys."""
    if not rows:
        return
    with prepared_cursor() as cursor:
        if is_postgresql():
            insert = insert_statement(model, columns, "INSERT", len(rows))
            cursor.execute(f"{insert} ON CONFLICT DO NOTHING", table_values(rows))
        else:
            cursor.executemany(insert_statement(model, columns, "INSERT OR IGNORE"), rows)


def update_rows(
    model: type[models.Model],
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    to: Mapping[str, Any] | None = None,
    where: Mapping[str, Any] | None = None,
    at_least: Mapping[str, Any] | None = None,
) -> int:
    """Execute ``request_update``; return the number of rows."""
    return request_update(model, keys, columns, rows, to=to, where=where, at_least=at_least)()


def request_update(
    model: type[models.Model],
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    to: Mapping[str, Any] | None = None,
    where: Mapping[str, Any] | None = None,
    at_least: Mapping[str, Any] | None = None,
) -> Callable[[], int]:
    """Update many rows in few statements; the result is the number of rows.

    Each of ``rows`` has the values of the columns ``keys``, which identify its row, then the new ones of ``columns``.
    ``to`` are new values, ``where`` expected old ones, that are the same for all; values below ``at_least`` are raised
    to that.
    """
    to, where, at_least = to or {}, where or {}, at_least or {}
    raised = [value for value in at_least.values() for _ in range(2)]
    cursors = []
    for start in range(0, len(rows), ROWS_PER_UPDATE):
        chunk = rows[start : start + ROWS_PER_UPDATE]
        update = _update(model, (*keys,), (*columns,), (*to,), (*where,), (*at_least,))
        cursors.append(prepared_cursor())
        cursors[-1].execute(
            update.replace(_TABLE, _table(model, [*keys, *columns], len(chunk))),
            [*to.values(), *raised, *table_values(chunk), *where.values()],
        )
    return lambda: sum(cursor.rowcount for cursor in cursors)


_TABLE = "{table of values}"


@functools.cache
def _update(
    model: type[models.Model],
    keys: tuple[str, ...],
    columns: tuple[str, ...],
    to: tuple[str, ...],
    where: tuple[str, ...],
    at_least: tuple[str, ...],
) -> str:
    """Return the text of ``update_rows``, with a placeholder for the table of its values."""
    fresh = [f"CAST(fresh.column{place} AS {kind})" for place, kind in enumerate(_kinds(model, (*keys, *columns)), 1)]
    found = [f"held.{name} = {value}" for name, value in zip(quoted(keys), fresh[: len(keys)], strict=True)]
    found += [f"held.{name} = %s" for name in quoted(where)]
    changed = [f"{name} = {value}" for name, value in zip(quoted(columns), fresh[len(keys) :], strict=True)]
    changed += [f"{name} = %s" for name in quoted(to)]
    changed += [f"{name} = CASE WHEN held.{name} < %s THEN %s ELSE held.{name} END" for name in quoted(at_least)]
    table = quoted([model._meta.db_table])[0]
    return f"UPDATE {table} AS held SET {', '.join(changed)} FROM {_TABLE} WHERE {' AND '.join(found)}"  # noqa: S608


def insert_statement(model: type[models.Model], columns: Sequence[str], verb: str, count: int = 1) -> str:
    """Return the statement that inserts ``count`` rows; ON CONFLICT or RETURNING may follow."""
    names, source = ", ".join(quoted(columns)), _table(model, columns, count)
    table = quoted([model._meta.db_table])[0]
    return f"{verb} INTO {table} AS held ({names}) SELECT * FROM {source} WHERE true"  # noqa: S608


def _table(model: type[models.Model], columns: Sequence[str], count: int) -> str:
    """Return a table ``fresh`` of ``count`` rows of these columns, for FROM; ``table_values`` are its values.

    On PostgreSQL it is built of one array per column: one placeholder per value takes ten times as long to send.
    """
    if not is_postgresql():
        return f"(VALUES {', '.join([_marks(columns)] * count)}) AS fresh"  # its columns are column1, column2 ...
    arrays = ", ".join(f"%s::{kind}[]" for kind in _kinds(model, (*columns,)))
    return f"unnest({arrays}) AS fresh ({', '.join(f'column{place}' for place in range(1, len(columns) + 1))})"


def table_values(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the values of the placeholders of a ``_table``."""
    if not is_postgresql():
        return [value for row in rows for value in row]
    return [_array(values) for values in zip(*rows, strict=True)]


def _array(values: Sequence[Any]) -> str:
    """Return values as an array literal of PostgreSQL. Fast paths: all numbers, or all plain texts."""
    kinds = set(map(type, values))
    if kinds == {int}:
        return "{" + ",".join(map(str, values)) + "}"
    if kinds == {str}:
        text = '","'.join(values)
        if "\\" not in text and text.count('"') == 2 * (len(values) - 1):
            return '{"' + text + '"}'
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: Any) -> str:
    """Return a value as an element of an array literal of PostgreSQL."""
    if value is None:
        return "NULL"
    if isinstance(value, int):  # includes bool
        return str(value)
    text = "\\x" + value.hex() if isinstance(value, bytes) else str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@functools.cache
def _kinds(model: type[models.Model], columns: tuple[str, ...]) -> list[str]:
    """Return the columns' types in this process's database, without their lengths."""
    fields = {field.column: field for field in model._meta.concrete_fields}
    return [(fields[column].rel_db_type(connection) or "").partition("(")[0] for column in columns]


def quoted(names: Iterable[str]) -> list[str]:
    return [f'"{name}"' for name in names]  # in both databases
