"""HTTP to segment writers: connections that are kept, one circuit breaker per instance, every answer in four words.

Source of what is tried elsewhere: placement sheet, section 11.
"""

from __future__ import annotations

import http.client
import json
import logging
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from urllib.parse import urlsplit

import httptools

from engine.placement.delivery import Answer, CircuitBreaker
from webadmin.ingest.writer.credential import authorization_header

log = logging.getLogger(__name__)

PATH = "/internal/v1/segments/push"
IDLE_MAX = 512
"""Kept connections per writer; what is more than this is closed after use."""
IDLE_SECONDS = 15.0
"""A connection that was idle for longer may be closed by the other side at any moment: it is not used again."""
ANSWER_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Reply:
    """What a writer said: the word that decides what follows, and words for people."""

    answer: Answer
    message: str = ""


@dataclass(slots=True)
class Exchange:
    """A message on its way to an instance; ``until`` is on ``time.monotonic``'s clock."""

    instance: str
    address: str
    body: bytes
    until: float
    connection: http.client.HTTPConnection | None = None
    was_kept: bool = False
    error: Exception | None = None


class WriterClients:
    """Shared by the threads of a process. Races between them cost a connection or a count, nothing else."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[tuple[http.client.HTTPConnection, float]]] = defaultdict(deque)
        self._breakers: dict[str, CircuitBreaker] = defaultdict(CircuitBreaker)

    def may_try(self, instance: str) -> bool:
        """Say whether an instance is worth asking now."""
        return self._breakers[instance].may_try(time.monotonic())

    def begin(self, instance: str, address: str, body: bytes, seconds: float) -> Exchange:
        """Send one message, so that others can be sent before its answer is waited for; never raises for a writer."""
        exchange = Exchange(instance, address, body, time.monotonic() + seconds)
        exchange.connection = self._kept(address)
        exchange.was_kept = exchange.connection is not None
        try:
            self._send(exchange)
        except (OSError, http.client.HTTPException) as error:
            exchange.error = error
        return exchange

    def finish(self, exchange: Exchange) -> Reply:
        """Wait for the answer to a message until its time is over; never raises for what a writer does."""
        try:
            reply = _reply(*self._answer(exchange))
        except (OSError, http.client.HTTPException) as error:
            reply = Reply(Answer.UNAVAILABLE, f"{type(error).__name__}: {error}")
        self._breakers[exchange.instance].record(reply.answer, time.monotonic())
        if reply.answer is not Answer.ACCEPTED:
            said = (exchange.instance, reply.answer.value, reply.message)
            log.warning("push_not_accepted instance=%s answer=%s: %s", *said)
        return reply

    def close(self) -> None:
        """Close what is idle."""
        for connections in self._idle.values():
            while connections:
                connections.pop()[0].close()

    def _answer(self, exchange: Exchange) -> tuple[int, bytes]:
        try:
            if exchange.error is not None:
                raise exchange.error
            return self._read(exchange)
        except (http.client.RemoteDisconnected, ConnectionError):
            if not exchange.was_kept:
                raise
        # It was closed while it was idle: nothing was taken, and a fresh one tells whether the writer lives.
        exchange.connection, exchange.was_kept = None, False
        self._send(exchange)
        return self._read(exchange)

    def _kept(self, address: str) -> http.client.HTTPConnection | None:
        connections = self._idle[address]
        while connections:
            try:
                connection, since = connections.pop()
            except IndexError:
                return None
            if time.monotonic() - since < IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _send(self, exchange: Exchange) -> None:
        seconds = max(0.001, exchange.until - time.monotonic())
        if exchange.connection is None:
            parts = urlsplit(exchange.address)
            kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
            exchange.connection = kind(parts.hostname or "", parts.port, timeout=seconds)
        connection = exchange.connection
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(seconds)
            connection.sock.sendall(_request(exchange))
        except BaseException:
            connection.close()
            raise

    def _read(self, exchange: Exchange) -> tuple[int, bytes]:
        connection, address = exchange.connection, exchange.address
        assert connection is not None
        response = _Response()
        try:
            while not response.is_over:
                connection.sock.settimeout(max(0.001, exchange.until - time.monotonic()))
                response.feed(connection.sock.recv(ANSWER_BYTES_MAX))
        except BaseException:
            connection.close()
            raise
        if response.stays_open and len(self._idle[address]) < IDLE_MAX:
            self._idle[address].append((connection, time.monotonic()))
        else:
            connection.close()
        return response.status, bytes(response.body)


def _request(exchange: Exchange) -> bytes:
    """Return a whole request: head and body leave in one call, and arrive as one."""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {urlsplit(exchange.address).netloc}\r\n"
        f"Content-Type: application/x-protobuf\r\nAuthorization: {authorization_header(exchange.instance)}\r\n"
        f"Content-Length: {len(exchange.body)}\r\n\r\n"
    )
    return head.encode("ascii") + exchange.body


class _Response:
    """An answer while it comes in. ``http.client`` would read its head as if it were an e-mail's, at great length."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.is_over = False
        self.stays_open = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    def feed(self, data: bytes) -> None:
        """Take what came; ConnectionError if nothing comes any more, HTTPException if it is no answer."""
        if not data:
            raise http.client.RemoteDisconnected("the writer closed the connection without a whole answer")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise http.client.HTTPException(f"not an HTTP answer: {error}") from error

    def on_body(self, data: bytes) -> None:
        """Keep as much as an answer of a writer may have."""
        self.body += data[: ANSWER_BYTES_MAX - len(self.body)]

    def on_message_complete(self) -> None:
        """Note that this was all."""
        self.is_over = True
        self.stays_open = self._parser.should_keep_alive()


def _reply(status: int, body: bytes) -> Reply:
    if status == 200:
        return Reply(Answer.ACCEPTED)
    message = _message(body) or f"status {status}"
    if status in {400, 413, 422}:
        return Reply(Answer.REFUSED, message)
    if status in {401, 408, 429, 502, 503, 504}:  # 401: its keys or its clock are others, another writer's may not be
        return Reply(Answer.UNAVAILABLE, message)
    return Reply(Answer.FAILED, f"status {status}: {message}")


def _message(body: bytes) -> str:
    try:
        found = json.loads(body)
        return str(found["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
