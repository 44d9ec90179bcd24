"""Whether a client still waits for its answer: a server that goes on for nobody is slow for all others."""

from __future__ import annotations

import select
import socket

from django.http import HttpRequest

SOCKET = "gunicorn.socket"
"""Where the server puts a request's connection."""


def has_left(request: HttpRequest) -> bool:
    """Say whether a client has closed the connection; False where that cannot be seen, as under TLS of our own."""
    connection = request.META.get(SOCKET)
    if type(connection) is not socket.socket:
        return False
    try:
        waiting = select.poll()
        waiting.register(connection, select.POLLIN)
        return bool(waiting.poll(0)) and not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True  # closed on our side too
