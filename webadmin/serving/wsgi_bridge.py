"""An ASGI application that runs a WSGI application in pools of threads.

A thread is used when a request is whole, or, where its body is large, when its headers are; answers leave threads at
once unless they are streamed. Which pool serves a request is decided by its path: what must not wait for anything else
has threads of its own.
"""

from __future__ import annotations

import asyncio
import io
import logging
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from webadmin.serving.body_buffers import BodyBuffers, ClientLeft, Connection, Message, Receive, StreamedBody
from webadmin.serving.deadline_protocol import CONNECTION_KEY

log = logging.getLogger(__name__)

BUFFERED_BYTES_MAX = 2_621_440
"""A body up to this size is gathered before a thread is used: Django's largest form (DATA_UPLOAD_MAX_MEMORY_SIZE)."""
REQUESTS, STREAMING = "requests", "streaming"
"""The pools of requests without a pool of their own: with bodies that are gathered, and with larger ones."""
FLUSH_BYTES = 256 << 10
_TITLES = {"content-type": "CONTENT_TYPE", "content-length": "CONTENT_LENGTH"}

Send = Callable[[Message], Awaitable[None]]
Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Route:
    """The pool that serves a path, and whether its view may get bodies larger than BUFFERED_BYTES_MAX.

    Only views that check credentials before they read may: others would let anybody hold a thread with a slow body.
    """

    pool: str
    takes_large_bodies: bool = False


class WsgiBridge:
    """Serves a WSGI application; ``pools`` are numbers of threads by name, STREAMING among them."""

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
        if not is_chunked and length == 0:
            environ["wsgi.input"] = io.BytesIO()
            await self._run(route.pool, environ, connection, send)
        elif not is_chunked and length <= BUFFERED_BYTES_MAX:
            try:
                body = await self._buffers.gather(connection, receive)
            except ClientLeft:
                _log_left_early(environ)
                return
            environ["wsgi.input"] = io.BytesIO(body)
            try:
                await self._run(route.pool, environ, connection, send)
            finally:
                self._buffers.release(body)
        elif route.takes_large_bodies:
            stream = StreamedBody(asyncio.get_running_loop(), receive)
            environ["wsgi.input"] = io.BufferedReader(stream, FLUSH_BYTES)
            environ["wsgi.input_terminated"] = True
            pool = STREAMING if route.pool == REQUESTS else route.pool
            await self._run(pool, environ, connection, send)
        else:
            status = "411 Length Required" if is_chunked else "413 Content Too Large"
            text = f"a body here has a length of at most {BUFFERED_BYTES_MAX} bytes\n".encode()
            await _send(send, status, [("Content-Type", "text/plain"), ("Connection", "close")], text)

    async def _run(self, pool: str, environ: dict[str, Any], connection: Connection, send: Send) -> None:
        loop = asyncio.get_running_loop()
        answer = _Answer(loop, send, connection)
        await loop.run_in_executor(self._pools[pool], self._respond, environ, answer)
        await answer.finish()

    def _respond(self, environ: dict[str, Any], answer: _Answer) -> None:
        """Let the application answer, in a thread."""
        if answer.connection.is_closed:
            _log_left_early(environ)
            return
        result: Iterable[bytes] = ()
        try:
            result = self._application(environ, answer.start)
            for part in result:
                answer.write(part)
        except ClientLeft as error:
            log.info("client_left path=%s: %s", environ["PATH_INFO"], error)
            answer.abandon()
        finally:
            if hasattr(result, "close"):
                result.close()


def _log_left_early(environ: dict[str, Any]) -> None:
    log.info("client_left_early path=%s", environ["PATH_INFO"])


class _Answer:
    """An answer on its way to the event loop: whole if it is small, in pieces that the client waits for if not."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Send, connection: Connection) -> None:
        self.connection = connection
        self._loop = loop
        self._send = send
        self._status = ""
        self._headers: list[tuple[str, str]] = []
        self._parts: list[bytes] = []
        self._size = 0
        self._has_started = False

    def start(self, status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
        """Take status and headers, as WSGI's ``start_response``."""
        self._status, self._headers = status, headers

    def write(self, part: bytes) -> None:
        """Take a part of the body; wait while the client has not taken what went before. ClientLeft if it is gone."""
        if self._size + len(part) > FLUSH_BYTES and self._size:
            asyncio.run_coroutine_threadsafe(self._flush(more=True), self._loop).result()
        if self.connection.is_closed:
            raise ClientLeft("the client left before it had its answer")
        self._parts.append(part)
        self._size += len(part)

    def abandon(self) -> None:
        """Send nothing more."""
        self._status = ""

    async def finish(self) -> None:
        """Send what is left."""
        if self._status and not self.connection.is_closed:
            await self._flush(more=False)

    async def _flush(self, *, more: bool) -> None:
        body, self._parts, self._size = b"".join(self._parts), [], 0
        if not self._has_started:
            self._has_started = True
            await _send(self._send, self._status, self._headers, body, more=more)
        else:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})


class FileParts:
    """What ``wsgi.file_wrapper`` makes of a file: parts of our size, whatever size the view wished for."""

    def __init__(self, file: Any, block_size: int = 0) -> None:
        self._file = file
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self) -> FileParts:
        return self

    def __next__(self) -> bytes:
        if part := self._file.read(FLUSH_BYTES):
            return bytes(part)
        raise StopIteration


def environ_of(scope: Message) -> dict[str, Any]:
    """Return WSGI's variables of a request, all but its body. Headers with an underscore are left out: they could pass
    for others.
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
