"""Vacuum tables after mass deletions."""

from __future__ import annotations

from django.db import connection, models

from webadmin.base.database.dialect import is_postgresql, quoted


def vacuum_table(model: type[models.Model]) -> None:
    """Vacuum a table from which many rows were deleted: until then its indexes contain dead entries.

    SQLite does not need it. PostgreSQL skips it inside of a transaction and while another process vacuums the table.
    """
    if is_postgresql() and not connection.in_atomic_block:
        with connection.cursor() as cursor:
            # Truncating the file would lock writers out.
            cursor.execute(f"VACUUM (SKIP_LOCKED, TRUNCATE FALSE) {quoted([model._meta.db_table])[0]}")
