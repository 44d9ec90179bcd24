"""Advisory locks: serialise work of which concurrent runs would be wasted. SQLite has a single writer anyway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import OperationalError, connection

from webadmin.base.database import dialect

WAIT_MS = 2000
"""How long a process waits for another one's lock, milliseconds; the work under the lock takes about ten."""


@contextmanager
def advisory_lock(number: int) -> Iterator[None]:
    """Hold the session's advisory lock of this number, so that one process after another enters.

    It protects no data: after ``WAIT_MS`` a process continues without the lock, because its holder may be on a lost
    machine. A lost connection releases it.
    """
    if connection.vendor != "postgresql":
        yield
        return
    is_held = _acquire(number)
    try:
        yield
    finally:
        if is_held:
            _release(number)


def lock_until_end(key: int) -> None:
    """Wait until no other transaction that has called this with the same key is open."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [key])


def _acquire(number: int) -> bool:
    """Return whether the lock was acquired in time."""
    try:
        with (
            dialect.pipeline(),
            dialect.prepared_cursor() as cursor,
        ):  # in one transaction, with which the time limit ends
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(WAIT_MS)])
            cursor.execute("SELECT pg_advisory_lock(%s)", [number])
    except BaseException as error:
        _release(number)  # it may have been acquired before the error
        if isinstance(error, OperationalError) and dialect.is_contention(error):
            return False
        raise
    return True


def _release(number: int) -> None:
    """Release the lock; the server only warns if it is not held."""
    with dialect.prepared_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
