"""The database wrapper that Django loads for PostgreSQL.

The server cancels a statement that takes too long (``statement_timeout``). If the server is lost while the connection
still looks open, this has no effect: a proxy or a pooler acknowledges the bytes, so neither ``tcp_user_timeout`` nor
keep-alives detect it. ``answer_seconds`` also limits each wait for an answer on the client's side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg.errors import _WaitTimeout


class DatabaseWrapper(base.DatabaseWrapper):
    """``answer_seconds`` is how long a statement may wait for its answer; 0: without limit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.answer_seconds = 0.0

    def get_connection_params(self) -> dict[str, Any]:
        """Return libpq's parameters, without ``answer_seconds``."""
        parameters: dict[str, Any] = super().get_connection_params()
        self.answer_seconds = float(parameters.pop("answer_seconds", 0))
        return parameters

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect; a wait for an answer that times out closes the connection and raises OperationalError."""
        connection = super().get_new_connection(conn_params)
        wait = connection.wait

        def wait_for_answer(generator: Any, *arguments: Any, timeout: float | None = None, **named: Any) -> Any:
            seconds = timeout if timeout is not None else self.answer_seconds or None
            try:
                return wait(generator, *arguments, timeout=seconds, **named)
            except _WaitTimeout as error:
                if timeout is not None:  # the caller's own limit, which it handles
                    raise
                connection.close()  # the statement may still run: this connection must not be used again
                raise psycopg.OperationalError(
                    f"the database has not answered for {seconds:g} s; the connection is closed"
                ) from error

        connection.wait = wait_for_answer
        return connection

    @contextmanager
    def answers_within(self, seconds: float) -> Iterator[None]:
        """Limit the wait of each statement inside for its answer to this many seconds."""
        self.ensure_connection()
        before, self.answer_seconds = self.answer_seconds, seconds
        try:
            yield
        finally:
            self.answer_seconds = before
