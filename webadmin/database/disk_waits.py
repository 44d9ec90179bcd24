"""Commits that are seen before they are on disk, and waiting until they are. SQLite's are on disk at once."""

from __future__ import annotations

from django.db import connection

from webadmin.database.dialect import is_postgresql, quick_cursor

_MARK = "pg_logical_emit_message(true, 'lithify', '')"
"""Makes the statement a commit of its own, of nothing but a mark in the server's log."""


def commits_early() -> str:
    """Return a condition, always true, with which a statement of its own is seen before it is on disk.

    Nobody may be told of it before ``wait_for_disk``, or an answer to ``waiting_for_disk``. In a transaction it changes
    nothing: that is its owner's to say.
    """
    if not is_postgresql() or connection.in_atomic_block:
        return "true"
    return "set_config('synchronous_commit', 'off', true) = 'off'"


def waiting_for_disk() -> str:
    """Return a column of a statement of its own, which is answered when all that was committed before it is on disk."""
    return _MARK if is_postgresql() else "1"


def wait_for_disk() -> None:
    """Wait until all that was committed before, by whomever, is as durable as the server's settings make a commit.

    SQLite's commits are.
    """
    if is_postgresql():
        with quick_cursor() as cursor:
            cursor.execute(f"SELECT {_MARK}")
