"""Statement timeouts by role of the process.

A slow or unreachable database must not hold a request, a heartbeat or a task for longer than its caller waits.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.db import connection

ANSWER_GRACE_SECONDS = 2
"""The server cancels a statement at its limit; the client gives up this much later if it received no answer."""
READINESS_SECONDS = 2.0
"""How long a readiness check waits for the database."""


class ProcessRole(enum.Enum):
    """The role of a process. The value is the default limit of its statements in seconds."""

    WEB = 10
    """Requests of users, workers and senders, which wait at most half a minute."""
    WRITER = 5
    """A flush that waits longer writes a dead letter instead."""
    CONTROL = 60
    """Control tasks and beat: bounded batches."""


def limit_statements(role: ProcessRole) -> None:
    """Limit the statements of this process; call it before the first connection.

    ``DATABASE_STATEMENT_SECONDS`` replaces the role's limit (0: none), and a ``statement_timeout`` in the options of
    ``DATABASE_URL`` replaces both. Migrations, rebuilds and other commands have no limit. SQLite has none either: its
    writers wait for each other up to the busy timeout.
    """
    set_limit(settings.DATABASES["default"], role, settings.DATABASE_STATEMENT_SECONDS)


def set_limit(database: dict[str, Any], role: ProcessRole, seconds: float | None = None) -> None:
    """Write the limit into an entry of ``DATABASES``; ``seconds`` replaces the role's, 0 for no limit."""
    if not database["ENGINE"].endswith("postgresql"):
        return
    if seconds is None:
        seconds = float(role.value)
    options = database["OPTIONS"]
    if seconds > 0 and "statement_timeout" not in options["options"]:
        options["options"] += f" -c statement_timeout={round(seconds * 1000)}"
        options["answer_seconds"] = seconds + ANSWER_GRACE_SECONDS


@contextmanager
def readiness_deadline() -> Iterator[None]:
    """Limit all statements inside to READINESS_SECONDS."""
    if connection.vendor == "postgresql":
        own: Any = connection  # the wrapper of webadmin.base.database.postgresql
        with own.answers_within(READINESS_SECONDS):
            yield
    else:
        yield
