"""The HTTP server of a process's metrics: slow connections are few, and end."""

from __future__ import annotations

import contextlib
import socket
import time
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves each connection in a thread, few at once, and closes those that last for longer than a request may."""

    daemon_threads = True
    connections_max = 32
    connection_seconds = 10.0

    def __init__(self, address: tuple[str, int], *arguments: Any, **named: Any) -> None:
        family, _, _, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family = family
        super().__init__(place[:2], *arguments, **named)
        self._since: dict[Any, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection; those beyond the bound are closed at once."""
        if len(self._since) >= self.connections_max:
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close what is late: its thread reads an end and goes."""
        due = time.monotonic() - self.connection_seconds
        for request, since in list(self._since.items()):
            if since < due:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)


class QuietHandler(WSGIRequestHandler):
    """Logs no requests."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
