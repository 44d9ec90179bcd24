"""Slowloris clients: many connections with incomplete requests that send a few bytes from time to time."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.processes import wait_until

DRIP_SECONDS = 0.5
NO_END, NOTHING = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b""
"""Headers without an end, and a connection that sends nothing."""
OPENINGS = (
    NO_END,
    NOTHING,
    b"POST /ingest?name=slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n1",
    b"POST /admin/login/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
    b"Cookie: csrftoken=" + b"a" * 32 + b"\r\nContent-Length: 2000000\r\n\r\nu",
    b"POST /api/v1/jobs/poll HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{",
)
"""Requests with incomplete bodies, also at views that read bodies without a credential."""


class SlowConnections:
    """Hold ``count`` connections open, and reopen those that the server closes, as an attacker would."""

    def __init__(self, url: str, count: int, openings: tuple[bytes, ...] = OPENINGS) -> None:
        parts = urlsplit(url)
        self._place = (parts.hostname or "", parts.port or 80)
        self._count = count
        self._openings = openings
        self._held: dict[socket.socket, bytes] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="slow-connections")
        self.closed_by_server = 0

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: len(self._held) == self._count, "all slow connections are open")
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        for connection in self._held:
            connection.close()

    def _hold(self) -> None:
        number = 0
        while True:
            while len(self._held) < self._count:
                connection = socket.create_connection(self._place)
                opening = self._openings[number % len(self._openings)]
                connection.sendall(opening)
                self._held[connection] = opening
                number += 1
            if self._stop.wait(DRIP_SECONDS):
                return
            self._drop_closed()
            for connection, opening in self._held.items():
                if opening == NO_END or b"/login/" in opening:  # The others send nothing more.
                    with contextlib.suppress(OSError):
                        connection.send(b"x")

    def _drop_closed(self) -> None:
        with selectors.DefaultSelector() as selector:
            for connection in self._held:
                selector.register(connection, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(0)]
        for connection in ready:
            assert isinstance(connection, socket.socket)
            connection.close()  # A rejection or an end: no other response is sent to an incomplete request.
            del self._held[connection]
            self.closed_by_server += 1
