"""Columns that combine several reads in one statement: the time of a poll is mostly its number of statements.

Each function returns SQL text with names of columns and tables of models, never a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import models

from webadmin.base.database.dialect import is_postgresql, quoted

_POSTGRESQL_SERVER = (
    "concat_ws('/', (SELECT system_identifier FROM pg_control_system()), "
    "left(pg_walfile_name(pg_current_wal_lsn()), 8), extract(epoch FROM pg_postmaster_start_time()), "
    "'schedule_loghead'::regclass::oid)"
)


def rows_column(columns: Sequence[str], select: str) -> str:
    """Return all rows of a ``select`` as one column: a JSON list of these columns per row, in no defined order.

    For few rows of numbers and texts. On SQLite booleans are numbers.
    """
    names = ", ".join(quoted(columns))
    if is_postgresql():
        return f"(SELECT COALESCE(json_agg(json_build_array({names})), '[]')::text FROM ({select}) AS part)"  # noqa: S608
    return f"(SELECT json_group_array(json_array({names})) FROM ({select}) AS part)"  # noqa: S608


def next_id_column(model: type[models.Model]) -> str:
    """Return the next row id of a table as a column; see ``dialect.request_ids``, which reserves many."""
    table, column = model._meta.db_table, model._meta.pk.column
    if is_postgresql():
        return f"nextval(pg_get_serial_sequence('{table}', '{column}'))"
    return f"(SELECT COALESCE(max(seq), 0) + 1 FROM sqlite_sequence WHERE name = '{table}')"  # noqa: S608


def server_column() -> str:
    """Return a column that changes whenever the database may be in another state than the last one written.

    PostgreSQL: the server's start, its system identifier and timeline, and the row id of one of our tables. A standby
    that was promoted, a recovery to an earlier time, or a restored copy or snapshot has a later start of the server,
    and a loaded dump has created the table again. SQLite has no such information: the column is constant there.
    """
    return _POSTGRESQL_SERVER if is_postgresql() else "'sqlite'"
