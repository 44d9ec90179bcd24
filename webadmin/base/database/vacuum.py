"""Lets go of rows that were deleted in great numbers."""

from __future__ import annotations

from django.db import connection, models

from webadmin.base.database.dialect import is_postgresql, quoted


def tidy_up(model: type[models.Model]) -> None:
    """Let go of many deleted rows of a table now: until then readers step over them in its indexes.

    SQLite leaves nothing behind. PostgreSQL does not do it inside of a transaction, nor while somebody else does.
    """
    if is_postgresql() and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            # To give the end of the file back would lock writers out.
            cursor.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {quoted([model._meta.db_table])[0]}")
