"""Turns: one process after the other does what would be in vain if two did it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import OperationalError, connection

from webadmin.database import dialect

TURN_WAIT_MS = 2000
"""How long to wait for a turn, milliseconds; the work behind one takes some ten."""

Answered = TypeVar("Answered")


@contextmanager
def turn(
    number: int, *, meanwhile: Callable[[], None], asking: Callable[[], Callable[[], Answered]]
) -> Iterator[Callable[[], Answered] | None]:
    """Let one after the other in, by number. Who has to wait does ``meanwhile`` first, and is given the answer to what
    ``asking`` asks for as soon as the turn has come; None says that nobody had to be waited for.

    No data is locked, and whoever loses its connection leaves. For work that would only be in vain if two did it at
    once: who has waited for ``TURN_WAIT_MS`` goes on without a turn, because the one that has it may stand on a machine
    that is gone. SQLite's one writer comes too seldom for all that.
    """
    if connection.vendor != "postgresql":
        yield None
        return
    with dialect.quick_cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s)", [number])
        is_alone = has_turn = cursor.fetchone()[0]
    answer = None
    if not is_alone:
        meanwhile()
        answer = _wait_for_turn(number, asking)
        has_turn = answer is not None
    try:
        yield answer if is_alone or has_turn else asking()
    finally:
        if has_turn:
            _leave(number)


def _wait_for_turn(number: int, asking: Callable[[], Callable[[], Answered]]) -> Callable[[], Answered] | None:
    """Wait until it is our turn and return the answer to what is asked right then; None if that took too long."""
    try:
        with dialect.together():  # which is one transaction, so the limit ends with it; the turn does not
            with dialect.quick_cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(TURN_WAIT_MS)])
                cursor.execute("SELECT pg_advisory_lock(%s)", [number])
            answer = asking()
    except BaseException as error:
        _leave(number)  # a turn that came before something else failed; the server does not mind if none did
        if isinstance(error, OperationalError) and dialect.is_contention(error):
            return None
        raise
    return answer


def _leave(number: int) -> None:
    with dialect.quick_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
