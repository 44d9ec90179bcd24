"""Conditional inserts and updates of rows in one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import models

from webadmin.base.database.dialect import ROWS_PER_UPDATE, insert_statement, prepared_cursor, quoted, table_values


def add_to_row(model: type[models.Model], key: str, value: Any, add: Mapping[str, int], put: Mapping[str, Any]) -> None:
    """Add to the counters of the row with this unique key, and set other values.

    A missing row is inserted, with the defaults of the model for its other columns.
    """
    named = {key, *add, *put}
    others = [f for f in model._meta.concrete_fields if f.column not in named and f.has_default()]
    rest = {str(f.column): f.get_default() for f in others}
    columns = [key, *add, *put, *rest]
    changed = [f"{name} = held.{name} + excluded.{name}" for name in quoted(add)]
    changed += [f"{name} = excluded.{name}" for name in quoted(put)]
    conflict = f"ON CONFLICT ({quoted([key])[0]}) DO UPDATE SET {', '.join(changed)}"
    with prepared_cursor() as cursor:
        cursor.execute(
            f"{insert_statement(model, columns, 'INSERT')} {conflict}",
            table_values([(value, *add.values(), *put.values(), *rest.values())]),
        )


def put_rows(
    model: type[models.Model],
    keys: Sequence[str],
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    counter: str,
    only_if: str,
    values: Sequence[Any],
) -> int:
    """Insert rows, or update the other ``columns`` of those that exist by their unique ``keys``; return their number.

    ``counter`` is incremented where a row existed. Nothing happens unless ``only_if`` (a condition with placeholders
    for ``values``) holds.
    """
    changed = [
        f"{name} = excluded.{name}" for name in quoted([each for each in columns if each not in (*keys, counter)])
    ]
    number = quoted([counter])[0]
    conflict = f"ON CONFLICT ({', '.join(quoted(keys))}) DO UPDATE SET {', '.join(changed)}"
    written = 0
    for start in range(0, len(rows), ROWS_PER_UPDATE):
        chunk = rows[start : start + ROWS_PER_UPDATE]
        insert = insert_statement(model, columns, "INSERT", len(chunk))
        with prepared_cursor() as cursor:
            cursor.execute(
                f"{insert} AND {only_if} {conflict}, {number} = held.{number} + 1",
                [*table_values(chunk), *values],
            )
            written += cursor.rowcount
    return written


def insert_new_row_if(
    model: type[models.Model], columns: Sequence[str], row: Sequence[Any], *, only_if: str, values: Sequence[Any]
) -> bool:
    """Insert a row if it violates no unique constraint and ``only_if`` holds; return whether it was inserted.

    ``only_if`` is a condition with placeholders for ``values``.
    """
    with prepared_cursor() as cursor:
        insert = insert_statement(model, columns, "INSERT")
        cursor.execute(f"{insert} AND {only_if} ON CONFLICT DO NOTHING", [*table_values([row]), *values])
        return bool(cursor.rowcount)
