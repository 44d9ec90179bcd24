"""The HTTP server of a process's metrics, with bounds on the number and duration of connections."""

from __future__ import annotations

import contextlib
import socket
import time
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves each connection in a thread; limits the number of connections and closes those that last too long."""

    daemon_threads = True
    connections_max = 32
    connection_seconds = 10.0

    def __init__(self, address: tuple[str, int], *arguments: Any, **named: Any) -> None:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        self.address_family, socket_address = found[0], found[4]
        super().__init__((str(socket_address[0]), int(socket_address[1])), *arguments, **named)
        self._since: dict[Any, float] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start to serve a connection; close it at once if there are ``connections_max`` already."""
        if len(self._since) >= self.connections_max:
            self.shutdown_request(request)
            return
        self._since[request] = time.monotonic()
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Shut down connections older than ``connection_seconds``; their threads read end of file and end."""
        due = time.monotonic() - self.connection_seconds
        for request, since in list(self._since.items()):
            if since < due:
                with contextlib.suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)


class QuietHandler(WSGIRequestHandler):
    """Handles requests without logging them."""

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing."""
