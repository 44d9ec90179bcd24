"""Deadlines of connections, with short times: what each slow client gets, and what is not charged to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from webadmin.serving.deadline_protocol import CONNECTION_KEY, HEADER_BYTES_MAX, HEADERS_MAX, DeadlineProtocol
from webadmin.serving.signal_free_server import SignalFreeServer

PATIENCE_S = 20.0
"""How long a test waits for what must come."""


class Hurried(DeadlineProtocol):
    """Deadlines that a test can wait for."""

    header_seconds = 0.2
    body_seconds = 0.2
    body_bytes_per_second = 1 << 20
    answer_seconds = 0.2


class Patient(Hurried):
    """Deadlines that a test on a busy machine does not miss where it must not."""

    header_seconds = 2.0
    body_seconds = 2.0


async def read_all(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the length of the body; leave it unread where the path says so."""
    size = 0
    while scope["path"] != "/unread":
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size += len(message["body"])
        if not message["more_body"]:
            break
    body = b"x" * (32 << 20) if scope["path"] == "/much" else str(size).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def read_late(scope: Any, receive: Any, send: Any) -> None:
    """Let the client wait for longer than its deadlines before anything is read."""
    await asyncio.sleep(3.0)
    await read_all(scope, receive, send)


@asynccontextmanager
async def serving(application: Any, http: type[DeadlineProtocol]) -> AsyncIterator[uvicorn.Server]:
    """Serve an application on a free port."""
    config = uvicorn.Config(application, http=http, ws="none", lifespan="off", log_config=None, port=0)
    server = SignalFreeServer(config)
    task = asyncio.create_task(server.serve())
    async with asyncio.timeout(PATIENCE_S):
        while not server.started:
            await asyncio.sleep(0.01)
        yield server
        server.should_exit = True
        await task


Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


def port_of(server: uvicorn.Server) -> int:
    """Return where it listens."""
    return int(server.servers[0].sockets[0].getsockname()[1])


def converse(talk: Talk, application: Any = read_all, http: type[DeadlineProtocol] = Hurried) -> bytes:
    """Let a client talk to a server; return what the client got."""

    async def run() -> bytes:
        async with serving(application, http) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            try:
                return await talk(reader, writer)
            finally:
                writer.close()

    return asyncio.run(run())


def sending(*parts: bytes) -> Talk:
    """Return a client that sends this and reads until the server closes."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        for part in parts:
            writer.write(part)
        await writer.drain()
        return await reader.read()

    return talk


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\r\n", id="an empty line"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n", id="headers without an end"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1", id="half of a body"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", id="chunks"),
    ],
)
def test_a_request_that_does_not_end_is_refused_at_its_deadline(sent: bytes) -> None:
    assert converse(sending(sent)).startswith(b"HTTP/1.1 408 ")


def test_bytes_now_and_then_do_not_extend_the_deadline() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n")
        while not reader.at_eof():
            writer.write(b"x")
            try:
                return await asyncio.wait_for(reader.read(), 0.05)
            except TimeoutError:
                continue
        return b""

    assert converse(drip).startswith(b"HTTP/1.1 408 ")


def test_a_further_request_has_a_deadline_of_its_own() -> None:
    got = converse(sending(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HT"), http=Patient)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in got


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"a" * (HEADER_BYTES_MAX + 400_000), b"431", id="bytes"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * (HEADERS_MAX + 1) + b"\r\n", b"400", id="headers"),
    ],
)
def test_headers_have_bounds(sent: bytes, status: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(sent)
        return await reader.readline()

    assert converse(talk).startswith(b"HTTP/1.1 " + status)


def test_a_body_that_the_server_reads_late_is_not_late() -> None:
    body = b"x" * (4 << 20)
    request = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert converse(sending(request, body), read_late, Patient).endswith(str(len(body)).encode())


def test_an_unread_body_does_not_keep_the_connection() -> None:
    """The answer came before the body: it is drained within the body's deadline, then the connection ends."""
    got = converse(sending(b"POST /unread HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"), http=Patient)
    assert got.startswith(b"HTTP/1.1 200 ")
    assert b"408" not in got


def test_a_client_that_does_not_read_its_answer_is_left() -> None:
    async def run() -> None:
        async with serving(read_all, Hurried) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(server))
            writer.write(b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n")
            while server.server_state.total_requests == 0 or server.server_state.connections:
                await asyncio.sleep(0.01)
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    "early", [pytest.param(b"\r\n", id="an empty line"), pytest.param(b"GET / HT", id="a request")]
)
def test_what_comes_early_does_not_end_the_request_that_is_being_answered(early: bytes) -> None:
    began = asyncio.Event()

    async def answer_late(scope: Any, receive: Any, send: Any) -> None:
        began.set()
        await asyncio.sleep(5 * Hurried.header_seconds)
        await read_all(scope, receive, send)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await began.wait()
        writer.write(early)
        await reader.readuntil(b"\r\n\r\n0")
        writer.write(b"x")  # from now on there is a deadline
        return await reader.read()

    assert converse(talk, answer_late).startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))


def test_the_end_of_a_body_is_no_header_of_the_next_request() -> None:
    size = HEADER_BYTES_MAX + 1

    async def read_in_one_piece(scope: Any, receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            scope[CONNECTION_KEY].data_received(b"x" * size + b"GET / HTTP/1.1\r\nHost: x\r\n")
        await read_all(scope, receive, send)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
        await reader.readuntil(b"\r\n\r\n%d" % size)
        writer.write(b"Connection: close\r\n\r\n")
        return await reader.read()

    assert converse(talk, read_in_one_piece, Patient).startswith(b"HTTP/1.1 200 ")
