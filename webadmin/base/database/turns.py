"""Turns: one process after the other does what would be in vain if two did it at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import OperationalError, connection

from webadmin.base.database import dialect

TURN_WAIT_MS = 2000
"""How long to wait for a turn, milliseconds; the work behind one takes some ten."""

Answered = TypeVar("Answered")


@contextmanager
def turn(
    number: int, *, asking: Callable[[], Callable[[], Answered]], meanwhile: Callable[[Answered], bool]
) -> Iterator[Answered]:
    """Let one after the other in, by number, each with the answer to what ``asking`` asks for right when its turn has
    come. Who would have to wait is answered at once, for ``meanwhile`` to use the time; that says whether there is
    still something to wait for, or else it is let in without a turn, with the answer that it has.

    No data is locked, and whoever loses its connection leaves. For work that would only be in vain if two did it at
    once: who has waited for ``TURN_WAIT_MS`` goes on without a turn, because the one that has it may stand on a machine
    that is gone. SQLite's one writer comes too seldom for all that.
    """
    if connection.vendor != "postgresql":
        yield asking()()
        return
    has_turn, answer = _try_turn(number, asking)
    try:
        if not has_turn and meanwhile(answer):
            waited = _wait_for_turn(number, asking)
            has_turn = waited is not None
            answer = (waited or asking())()
        yield answer
    finally:
        if has_turn:
            _leave(number)


def lock_until_end(key: int) -> None:
    """Wait until no other transaction that has called this with the same key is open; SQLite has one writer anyway."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s, 0)", [key])


def _try_turn(number: int, asking: Callable[[], Callable[[], Answered]]) -> tuple[bool, Answered]:
    """Return whether it is our turn, and the answer to what is asked along with that."""
    try:
        with dialect.together():
            has_turn = dialect.ask("SELECT pg_try_advisory_lock(%s)", [number])
            answer = asking()
        return bool(has_turn()[0][0]), answer()
    except BaseException:  # whatever it is goes on, and the turn may have come already
        _leave(number)
        raise


def _wait_for_turn(number: int, asking: Callable[[], Callable[[], Answered]]) -> Callable[[], Answered] | None:
    """Wait until it is our turn and return the answer to what is asked right then; None if that took too long."""
    try:
        with dialect.together():  # which is one transaction, so the limit ends with it; the turn does not
            with dialect.quick_cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [str(TURN_WAIT_MS)])
                cursor.execute("SELECT pg_advisory_lock(%s)", [number])
            answer = asking()
    except BaseException as error:
        _leave(number)
        if isinstance(error, OperationalError) and dialect.is_contention(error):
            return None
        raise
    return answer


def _leave(number: int) -> None:
    """Give up a turn, even one that came before something else failed; the server does not mind if there is none."""
    with dialect.quick_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [number])
