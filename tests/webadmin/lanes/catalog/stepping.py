"""An operation on a connection of its own that stops before a given statement: so tests force an order."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connection

DEADLINE_SECONDS = 60


class Stepped:
    """Runs ``action`` in a thread up to the first statement that contains ``until``; then waits until resumed."""

    def __init__(self, action: Callable[[], Any], until: str) -> None:
        self._action, self._until = action, until
        self._stopped, self._go = threading.Event(), threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait()

    def to(self, until: str) -> None:
        """Continue to the next statement that contains this."""
        assert self._thread.is_alive(), "it is over"
        self._until = until
        self._stopped.clear()
        self._go.set()
        self._wait()

    def end(self) -> Any:
        """Continue to the end; return what the action returned, or raise what it raised."""
        self._until = ""
        self._go.set()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error
        return self._result

    def _wait(self) -> None:
        assert self._stopped.wait(DEADLINE_SECONDS)
        assert self._thread.is_alive(), f"it never came to {self._until!r}"

    def _run(self) -> None:
        try:
            with connection.execute_wrapper(self._gate):
                self._result = self._action()
        except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
            self._error = error
        finally:
            connection.close()
            self._until = self._until and "the end"
            self._stopped.set()

    def _gate(self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        if self._until and self._until in sql:
            self._go.clear()
            self._stopped.set()
            assert self._go.wait(DEADLINE_SECONDS)
        return execute(sql, params, many, context)
