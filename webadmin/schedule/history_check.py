"""Detect at the start of a process that takes commands whether the database is an older copy."""

from __future__ import annotations

import logging
import threading

log = logging.getLogger(__name__)

WAIT_SECONDS = 5.0
"""How long a process waits for its check: gunicorn kills one that has not begun to serve after 30 s."""


def check_history(wait_seconds: float = WAIT_SECONDS) -> threading.Thread:
    """Continue the command log if the bucket shows that the database is an older copy; return the checking thread.

    Web, control and writer processes call it when they start. It waits for the thread, so that the check precedes the
    first command, but at most ``wait_seconds``: if the database or the object store does not answer, the thread
    continues, and the task of every minute checks again.
    """
    thread = threading.Thread(target=_note_positions, name="history-check", daemon=True)
    thread.start()
    thread.join(wait_seconds)
    if thread.is_alive():
        log.warning("log_positions_not_read_yet waited_seconds=%g", wait_seconds)
    return thread


def _note_positions() -> None:
    # Imported late: models can be imported only when Django is set up.
    from django.db import Error as AnyDatabaseError
    from django.db import connection

    from engine.core.errors import LithifyError
    from webadmin.schedule.services.guard_deletions import note_own_positions

    try:
        note_own_positions()
    except (AnyDatabaseError, LithifyError) as error:
        log.warning("log_positions_not_read reason=%s", error)
    finally:
        connection.close()
