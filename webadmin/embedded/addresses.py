"""Local ports: find free ones, and probe the server on a port."""

from __future__ import annotations

import http.client
import socket

LOOPBACK = "127.0.0.1"
ANSWER_SECONDS = 2.0
REDIS_ANSWER_MAX = 200


def free_port(wished: int = 0) -> int:
    """Return ``wished`` if it is free on the loopback address, else any free port."""
    for port in (wished, 0):
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((LOOPBACK, port))
            except OSError:
                continue
            return int(listener.getsockname()[1])
    raise OSError(f"no free port on {LOOPBACK}")


def answers_http(port: int, path: str) -> bool:
    """Return whether a web server on this port responds to ``path`` with 200."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def answers_redis(port: int, password: str) -> bool:
    """Return whether a Redis on this port accepts this password and has finished loading."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            with connection.makefile("rb") as answers:
                return [answers.readline(REDIS_ANSWER_MAX), answers.readline(REDIS_ANSWER_MAX)] == [
                    b"+OK\r\n",
                    b"+PONG\r\n",
                ]
    except OSError:
        return False
