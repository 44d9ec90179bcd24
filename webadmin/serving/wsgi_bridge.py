"""An ASGI application that runs a WSGI application in pools of threads.

A thread is used when a request is complete or, if its body is large, when its headers are. No thread waits for a client
to read an answer. The path determines the pool that serves a request: paths that must not wait for others have threads
of their own.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from django.db import close_old_connections

from webadmin.serving.body_buffers import BodyBuffers, ClientLeft, Connection, Message, Receive, StreamedBody
from webadmin.serving.deadline_protocol import CONNECTION_KEY

log = logging.getLogger(__name__)

BUFFERED_BYTES_MAX = 2_621_440
"""A body up to this size is buffered before a thread is used: Django's largest form (DATA_UPLOAD_MAX_MEMORY_SIZE)."""
PIECE_BYTES = 256 << 10
"""Parts of an answer are combined up to this size; a larger part is sent as it is."""
_TITLES = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Route:
    """The pool that serves a path, and the one for bodies larger than BUFFERED_BYTES_MAX; None where they are rejected.

    Only views that check credentials before they read may have the latter: otherwise any client could hold a thread
    with a slow body.
    """

    pool: str
    large_bodies_pool: str | None = None


class WsgiBridge:
    """Serves a WSGI application; ``pools`` are numbers of threads by name."""

    def __init__(self, application: Application, pools: Mapping[str, int], route: Callable[[str], Route]) -> None:
        self._application = application
        self._route = route
        self._pools = {name: ThreadPoolExecutor(threads, f"web-{name}") for name, threads in pools.items()}
        self._buffers = BodyBuffers()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        connection: Connection = scope[CONNECTION_KEY]
        environ = environ_of(scope)
        route = self._route(environ["PATH_INFO"])
        is_chunked = "HTTP_TRANSFER_ENCODING" in environ
        length = int(environ.get("CONTENT_LENGTH", 0))
        if not is_chunked and length <= BUFFERED_BYTES_MAX:
            try:
                environ["wsgi.input"] = io.BytesIO(await self._buffers.gather(connection, receive) if length else b"")
            except ClientLeft:
                _log_left_early(environ)
                return
            await self._run(route.pool, environ, connection, send, length)
        elif route.large_bodies_pool is not None:
            stream = StreamedBody(asyncio.get_running_loop(), receive)
            environ["wsgi.input"] = io.BufferedReader(stream, PIECE_BYTES)
            environ["wsgi.input_terminated"] = True
            await self._run(route.large_bodies_pool, environ, connection, send)
        else:
            status = "411 Length Required" if is_chunked else "413 Content Too Large"
            text = f"a body here has a length of at most {BUFFERED_BYTES_MAX} bytes\n".encode()
            await _send(send, status, [("Content-Type", "text/plain"), ("Connection", "close")], text)

    async def _run(
        self, pool: str, environ: dict[str, Any], connection: Connection, send: Send, gathered_bytes: int = 0
    ) -> None:
        loop, threads = asyncio.get_running_loop(), self._pools[pool]
        answer = _Answer(self._application, environ, connection)
        try:
            try:
                piece = await loop.run_in_executor(threads, answer.next_piece)
            finally:  # the rest of an answer may take hours and must not hold a buffered body
                if gathered_bytes:
                    environ["wsgi.input"].close()
                    self._buffers.release(gathered_bytes)
            if not answer.status or connection.is_closed:
                return
            await _send(send, answer.status, answer.headers, piece, more=not answer.is_over)
            while not answer.is_over:
                piece = await loop.run_in_executor(threads, answer.next_piece)
                if not answer.status:
                    return
                await send({"type": "http.response.body", "body": piece, "more_body": not answer.is_over})
        finally:
            if not answer.is_over:
                await loop.run_in_executor(threads, answer.close)


def _log_left_early(environ: dict[str, Any]) -> None:
    log.info("client_left_early path=%s", environ["PATH_INFO"])


class _Answer:
    """An answer that is produced in threads, piece by piece; each piece may use another thread of the pool.

    Database connections belong to threads. So each thread closes those that are too old or broken before and after its
    piece, as Django does at the beginning and at the end of a request.
    """

    def __init__(self, application: Application, environ: dict[str, Any], connection: Connection) -> None:
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.is_over = False
        """Whether there are no more pieces, and the application's iterable is closed."""
        self._application = application
        self._environ = environ
        self._connection = connection
        self._result: Iterable[bytes] | None = None
        self._parts: Iterator[bytes] = iter(())
        self._lock = threading.Lock()  # cancelling a task does not stop its thread

    def next_piece(self) -> bytes:
        """Return the next PIECE_BYTES or more of the body, less at its end; the first call calls the application.

        ``status`` is empty, and nothing more is to be sent, when the client has disconnected.
        """
        with self._lock:
            close_old_connections()
            try:
                return self._make_piece()
            except BaseException as error:
                self._close()
                if not isinstance(error, ClientLeft):
                    raise
                log.info("client_left path=%s: %s", self._environ["PATH_INFO"], error)
                self.status = ""
                return b""
            finally:
                close_old_connections()

    def close(self) -> None:
        """Close the application's iterable, unless it is closed."""
        with self._lock:
            self._close()

    def _make_piece(self) -> bytes:
        if self._result is None:
            if self._connection.is_closed:
                _log_left_early(self._environ)
                self.is_over = True
                return b""
            self._result = self._application(self._environ, self._start)
            self._parts = iter(self._result)
        elif self._connection.is_closed:
            raise ClientLeft("the client left before it had its answer")
        made: list[bytes] = []
        size = 0
        while size < PIECE_BYTES:
            part = next(self._parts, None)
            if part is None:
                self._close()
                break
            made.append(part)
            size += len(part)
        return b"".join(made)

    def _start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        """Store status and headers: ``start_response`` of WSGI."""
        self.status, self.headers = status, headers

    def _close(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        close = getattr(self._result, "close", None)
        if close is not None:
            close()


class FileParts:
    """``wsgi.file_wrapper``: parts of a file in our size, whatever size the view requests."""

    def __init__(self, file: Any, block_size: int = 0) -> None:
        self._file = file
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self) -> FileParts:
        return self

    def __next__(self) -> bytes:
        if part := self._file.read(PIECE_BYTES):
            return bytes(part)
        raise StopIteration


def environ_of(scope: Message) -> dict[str, Any]:
    """Return WSGI's environment of a request, except for its body.

    Headers with an underscore are dropped: they could be mistaken for others.
    """
    host, port = scope["server"] or ("localhost", 80)
    client = scope["client"] or ("", 0)
    environ = {
        "REQUEST_METHOD": scope["method"],
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(scope["raw_path"]).decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "REMOTE_ADDR": client[0],
        "REMOTE_PORT": str(client[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileParts,
        CONNECTION_KEY: scope[CONNECTION_KEY],
    }
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if "_" in name:
            continue
        key = _TITLES.get(name) or "HTTP_" + name.upper().replace("-", "_")
        environ[key] = f"{environ[key]},{value}" if key in environ else value
    return environ


async def _send(
    send: Send, status: str, headers: Iterable[tuple[str, str]], body: bytes, *, more: bool = False
) -> None:
    code = int(status.split(" ", 1)[0])
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if not more and code not in (204, 304) and not any(name.lower() == b"content-length" for name, _ in sent):
        sent.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": code, "headers": sent})
    await send({"type": "http.response.body", "body": body, "more_body": more})
