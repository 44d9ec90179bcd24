"""Turns: one process after the other does what would be in vain if two did it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection, transaction

from webadmin.database import dialect

TURN_WAIT_MS = 2000
"""How long to wait for a turn, milliseconds; the work behind one takes some ten."""


@contextmanager
def turn(number: int, meanwhile: Callable[[], None]) -> Iterator[bool]:
    """Let one after the other in, by number; yields whether there was somebody to wait for. Who has to wait does
    ``meanwhile`` first.

    No data is locked, and whoever loses its connection leaves. For work that would only be in vain if two did it at
    once: who has waited for ``TURN_WAIT_MS`` goes on without a turn, because the one that has it may stand on a machine
    that is gone. SQLite's one writer comes too seldom for all that.
    """
    if connection.vendor != "postgresql":
        yield False
        return
    with dialect.quick_cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
        is_alone = has_turn = cursor.fetchone()[0]
    if not is_alone:
        meanwhile()
        has_turn = _wait_for_turn(number)
    try:
        yield not is_alone
    finally:
        if has_turn:
            with dialect.quick_cursor() as cursor:
                cursor.execute("SELECT pg_advisory_unlock(%s)", [number])


def _wait_for_turn(number: int) -> bool:
    """Wait until it is our turn, which outlives the transaction; False if that took too long."""
    try:
        with transaction.atomic(), dialect.quick_cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(TURN_WAIT_MS)])
            cursor.execute("SELECT pg_advisory_lock(%s)", [number])
    except OperationalError as error:
        if not dialect.is_contention(error):
            raise
        return False
    return True
