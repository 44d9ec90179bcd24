"""A WSGI application behind the bridge: what it is given, what comes of its answers, which threads it takes."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
import uvicorn
from django.db import connection as database

from tests.processes import wait_until
from webadmin.ingest.urls import INGEST_VIEWS
from webadmin.serving.body_buffers import BodyBuffers, ClientLeft
from webadmin.serving.deadline_protocol import CONNECTION_KEY, DeadlineProtocol
from webadmin.serving.routes import ALIVE, HEALTH, POLLS, REQUESTS, STREAMING, route_of
from webadmin.serving.signal_free_server import SignalFreeServer
from webadmin.serving.wsgi_bridge import BUFFERED_BYTES_MAX, PIECE_BYTES, Route, WsgiBridge

PATIENCE_S = 20.0
ROUTES = {"/large": Route(REQUESTS, STREAMING), "/other": Route("other")}


class Application:
    """Answers with what it was given; notes which threads it ran in and how reading ended."""

    def __init__(self) -> None:
        self.environ: dict[str, Any] = {}
        self.thread = ""
        self.read: int | BaseException = -1
        self.began = threading.Event()
        self.go_on = threading.Event()
        self.parts: Iterable[bytes] = ()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer."""
        self.environ, self.thread = environ, threading.current_thread().name
        if environ["PATH_INFO"] == "/other":
            start_response("200 OK", [])
            return [b"other"]
        self.began.set()
        if environ["PATH_INFO"] == "/wait":
            self.go_on.wait(PATIENCE_S)
            self.read = int(environ[CONNECTION_KEY].is_closed)
        else:
            try:
                self.read = len(environ["wsgi.input"].read())
            except OSError as error:
                self.read = error
                raise
        start_response("200 OK", [("X-Kind", "test")])
        return self.parts or [str(self.read).encode()]


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[Any]]


def converse(application: Application, talk: Talk) -> Any:
    """Let a client talk to a bridge with one thread per pool; return what the client returns."""

    async def run() -> Any:
        bridge = WsgiBridge(application, {REQUESTS: 1, STREAMING: 1, "other": 1}, lambda path: ROUTES.get(path, PAGE))
        config = uvicorn.Config(bridge, http=DeadlineProtocol, ws="none", lifespan="off", log_config=None, port=0)
        server = SignalFreeServer(config)
        task = asyncio.create_task(server.serve())
        async with asyncio.timeout(PATIENCE_S):
            while not server.started:
                await asyncio.sleep(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await talk(reader, writer, port)
            finally:
                writer.close()
                application.go_on.set()
                server.should_exit = True
                await task

    return asyncio.run(run())


PAGE = Route(REQUESTS)


def ask(application: Application, request: bytes) -> bytes:
    """Send a request that closes its connection; return the whole answer."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> bytes:
        writer.write(request)
        return await reader.read()

    return bytes(converse(application, talk))


def test_the_application_sees_the_request() -> None:
    application = Application()
    head = b"POST /a%20b%C3%BC?q=1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\nX_Y: forged\r\nX-Z: 1\r\nX-Z: 2\r\n"
    answer = ask(application, head + b"Content-Type: text/x\r\nContent-Length: 3\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"x-kind: test\r\n" in answer.lower()
    assert b"content-length: 1\r\n" in answer.lower()
    assert answer.endswith(b"\r\n\r\n3")
    found = application.environ
    assert (found["REQUEST_METHOD"], found["PATH_INFO"], found["QUERY_STRING"]) == ("POST", "/a b\u00c3\u00bc", "q=1")
    assert (found["HTTP_HOST"], found["HTTP_X_Z"], found["CONTENT_TYPE"]) == ("x:1", "1,2", "text/x")
    assert found["REMOTE_ADDR"] == "127.0.0.1"
    assert "HTTP_X_Y" not in found


@pytest.mark.parametrize("size", [0, 1, BUFFERED_BYTES_MAX, BUFFERED_BYTES_MAX + 1, 8 << 20])
def test_bodies_arrive_whole_in_the_threads_for_their_size(size: int) -> None:
    application = Application()
    head = b"POST /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % size
    assert ask(application, head + b"x" * size).endswith(b"\r\n\r\n%d" % size)
    pool = STREAMING if size > BUFFERED_BYTES_MAX else REQUESTS
    assert application.thread.startswith(f"web-{pool}")


@pytest.mark.parametrize(
    ("framing", "status"),
    [(b"Content-Length: %d" % (BUFFERED_BYTES_MAX + 1), b"413"), (b"Transfer-Encoding: chunked", b"411")],
)
def test_a_page_takes_no_body_that_a_thread_would_wait_for(framing: bytes, status: bytes) -> None:
    application = Application()
    assert ask(application, b"POST /login HTTP/1.1\r\nHost: x\r\n" + framing + b"\r\n\r\n").startswith(
        b"HTTP/1.1 " + status
    )
    assert application.thread == ""


def test_answers_in_parts_arrive_whole() -> None:
    application = Application()
    application.parts = [b"a" * 700_000, b"b", b"", b"c" * 300_000, b"d" * 10]

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> bytes:
        return await asyncio.to_thread(fetch, port)

    assert converse(application, talk) == b"".join(application.parts)


class Parts:
    """Parts of an answer; counts how many were made, and how often it was closed."""

    def __init__(self, *, fails: bool = False) -> None:
        self.made = 0
        self.closings = 0
        self._fails = fails

    def __iter__(self) -> Iterator[bytes]:
        """Make them; the whole is more than any buffer takes."""
        for self.made in range(1, 201):
            if self._fails and self.made == 3:
                raise RuntimeError("the third part cannot be made")
            yield b"x" * (1 << 20)

    def close(self) -> None:
        """Count."""
        self.closings += 1


def test_clients_that_do_not_read_hold_no_thread() -> None:
    """The pool has one thread; waiting bodies are bounded, and closed when the client leaves."""
    application = Application()
    parts = application.parts = Parts()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> bytes:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.to_thread(slow.connect, ("127.0.0.1", port))
            slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
            await asyncio.to_thread(wait_until, lambda: parts.made >= 2, "the answer began")
            body, application.parts = application.environ["wsgi.input"], ()
            answer = await asyncio.to_thread(fetch, port)
            assert body.closed
            assert parts.closings == 0
        await asyncio.to_thread(wait_until, lambda: parts.closings, "the parts are closed")
        return answer

    assert converse(application, talk) == b"0"
    assert parts.made < 100
    assert parts.closings == 1


@pytest.mark.parametrize(("parts", "made"), [(Parts(), 200), (Parts(fails=True), 3)], ids=["whole", "broken"])
def test_parts_are_closed_once_they_are_over(parts: Parts, made: int) -> None:
    application = Application()
    application.parts = parts

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        with suppress(http.client.IncompleteRead):
            assert len(await asyncio.to_thread(fetch, port)) == made << 20

    converse(application, talk)
    assert (parts.made, parts.closings) == (made, 1)


@pytest.mark.django_db(transaction=True)
def test_a_thread_keeps_no_old_connection_between_the_parts() -> None:
    """The next part may be made by another thread, and this thread may never make one again."""
    application = Application()
    is_open: list[bool] = []

    def parts() -> Iterator[bytes]:
        database.ensure_connection()
        database.close_at = time.monotonic()
        yield b"x" * PIECE_BYTES
        is_open.append(database.connection is not None)
        database.close()

    application.parts = parts()
    answer = ask(application, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert is_open == [False]


def test_uploads_to_the_catalog_hold_no_thread_that_a_push_needs() -> None:
    upload = route_of("/lakefs/api/v1/repositories/r/branches/b/objects")
    assert upload.pool == REQUESTS
    assert upload.large_bodies_pool not in (None, REQUESTS, route_of("/ingest").large_bodies_pool)


def fetch(port: int) -> bytes:
    """Return a body as an ordinary client sees it."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/")
        with connection.getresponse() as answer:
            return answer.read()


def test_a_body_that_breaks_off_ends_the_read() -> None:
    application = Application()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        writer.write(b"POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\nabc")
        await asyncio.to_thread(application.began.wait, PATIENCE_S)
        writer.close()
        await asyncio.to_thread(wait_until, lambda: application.read != -1, "the read ends")

    converse(application, talk)
    assert isinstance(application.read, ClientLeft)


def test_the_application_sees_that_the_client_left() -> None:
    application = Application()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.to_thread(application.began.wait, PATIENCE_S)
        writer.close()
        is_closed = lambda: application.environ[CONNECTION_KEY].is_closed  # noqa: E731
        await asyncio.to_thread(wait_until, is_closed, "the connection is seen closed")
        application.go_on.set()
        await asyncio.to_thread(wait_until, lambda: application.read != -1, "the view looks")

    converse(application, talk)
    assert application.read == 1


def test_a_pool_of_its_own_does_not_wait_for_the_others() -> None:
    application = Application()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> bytes:
        writer.write(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        await asyncio.to_thread(application.began.wait, PATIENCE_S)
        other_reader, other = await asyncio.open_connection("127.0.0.1", port)
        other.write(b"GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = await other_reader.read()
        other.close()
        return answer

    assert converse(application, talk).endswith(b"other")


class Sender:
    """A connection whose body comes when the test says so."""

    def __init__(self) -> None:
        self.is_closed = False
        self.refused = 0
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def give_up(self, status: int) -> None:
        """Note it, and end the body."""
        self.refused, self.is_closed = status, True
        self.messages.put_nowait({"type": "http.disconnect"})

    def send(self, size: int, *, more: bool) -> None:
        """Let a part of the body come."""
        self.messages.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": more})


def test_the_slowest_body_makes_room() -> None:
    async def run() -> None:
        buffers = BodyBuffers(limit=100)
        slow, quick, late = Sender(), Sender(), Sender()
        slow.send(60, more=True)
        first = asyncio.create_task(buffers.gather(slow, slow.messages.get))
        await asyncio.sleep(0)
        quick.send(50, more=False)
        assert await buffers.gather(quick, quick.messages.get) == b"x" * 50
        with pytest.raises(ClientLeft):
            await first
        assert slow.refused == 503
        late.send(60, more=True)  # what is whole and not answered yet counts too
        with pytest.raises(ClientLeft):
            await buffers.gather(late, late.messages.get)
        assert late.refused == 503
        buffers.release(50)
        last = Sender()
        last.send(100, more=False)
        assert len(await buffers.gather(last, last.messages.get)) == 100

    asyncio.run(run())


@pytest.mark.parametrize("path", sorted(INGEST_VIEWS))
def test_every_address_of_pushes_takes_large_bodies(path: str) -> None:
    assert route_of("/" + path) == Route(REQUESTS, STREAMING)


def test_routes() -> None:
    assert route_of("/any/prefix//push.v1.PusherService/Push") == Route(REQUESTS, STREAMING)
    assert route_of("/healthz").pool == ALIVE
    assert {route_of(path).pool for path in ("/readyz", "/progressz", "/metrics")} == {HEALTH}
    assert route_of("//api/v1/jobs/poll") == Route(POLLS, POLLS)
    assert route_of("/api/v1/jobs/1/result") == Route(REQUESTS, STREAMING)
    assert route_of("/admin/login/") == Route(REQUESTS)
