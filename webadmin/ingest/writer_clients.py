"""HTTP client for segment writers: kept-alive connections, one circuit breaker per instance, four kinds of reply.

Source of what is retried with another instance: placement sheet, section 11.
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
"""Maximum idle connections per writer; further ones are closed after use."""
IDLE_SECONDS = 15.0
"""Maximum seconds that a connection is idle; after it the server may close it at any moment."""
ANSWER_BYTES_MAX = 64 << 10


@dataclass(frozen=True, slots=True)
class Reply:
    """Response of a writer: the code that decides on a retry, and a message."""

    answer: Answer
    message: str = ""


@dataclass(slots=True)
class Exchange:
    """A request to an instance; ``until`` is a ``time.monotonic`` value."""

    instance: str
    address: str
    body: bytes
    until: float
    connection: http.client.HTTPConnection | None = None
    was_kept: bool = False
    error: Exception | None = None


class WriterClients:
    """Client shared by all threads of a process. Data races cost a connection or a count only."""

    def __init__(self) -> None:
        self._idle: dict[str, deque[tuple[http.client.HTTPConnection, float]]] = defaultdict(deque)
        self._breakers: dict[str, CircuitBreaker] = defaultdict(CircuitBreaker)

    def may_try(self, instance: str) -> bool:
        """Return whether the circuit breaker of an instance permits a request."""
        return self._breakers[instance].may_try(time.monotonic())

    def begin(self, instance: str, address: str, body: bytes, seconds: float) -> Exchange:
        """Send one request without waiting for its response, so that several run at once.

        Errors are returned by ``finish``.
        """
        exchange = Exchange(instance, address, body, time.monotonic() + seconds)
        exchange.connection = self._kept(address)
        exchange.was_kept = exchange.connection is not None
        try:
            self._send(exchange)
        except (OSError, http.client.HTTPException) as error:
            exchange.error = error
        return exchange

    def finish(self, exchange: Exchange) -> Reply:
        """Wait for the response until the deadline; errors of a writer become replies."""
        try:
            reply = _reply(*self._answer(exchange))
        except (OSError, http.client.HTTPException) as error:
            reply = Reply(Answer.UNAVAILABLE, f"{type(error).__name__}: {error}")
        self._breakers[exchange.instance].record(reply.answer, time.monotonic())
        if reply.answer is not Answer.ACCEPTED:
            details = (exchange.instance, reply.answer.value, reply.message)
            log.warning("push_not_accepted instance=%s answer=%s: %s", *details)
        return reply

    def close(self) -> None:
        """Close the idle connections."""
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
        # The server closed the connection while it was idle: retry on a new one.
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
    """Return head and body in one buffer, so that one call sends both."""
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: {urlsplit(exchange.address).netloc}\r\n"
        f"Content-Type: application/x-protobuf\r\nAuthorization: {authorization_header(exchange.instance)}\r\n"
        f"Content-Length: {len(exchange.body)}\r\n\r\n"
    )
    return head.encode("ascii") + exchange.body


class _Response:
    """Incremental parser of a response. ``http.client`` is slow because it parses the head as an e-mail message."""

    def __init__(self) -> None:
        self.body = bytearray()
        self.is_over = False
        self.stays_open = False
        self._parser = httptools.HttpResponseParser(self)

    @property
    def status(self) -> int:
        return int(self._parser.get_status_code())

    def feed(self, data: bytes) -> None:
        """Parse received bytes.

        Raises ConnectionError at the end of the stream, HTTPException if it is not valid HTTP.
        """
        if not data:
            raise http.client.RemoteDisconnected("the writer closed the connection before a complete response")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise http.client.HTTPException(f"invalid HTTP response: {error}") from error

    def on_body(self, data: bytes) -> None:
        """Keep the body up to the maximum size of a writer's response."""
        self.body += data[: ANSWER_BYTES_MAX - len(self.body)]

    def on_message_complete(self) -> None:
        """Mark the response as complete."""
        self.is_over = True
        self.stays_open = self._parser.should_keep_alive()


def _reply(status: int, body: bytes) -> Reply:
    if status == 200:
        return Reply(Answer.ACCEPTED)
    message = _message(body) or f"status {status}"
    if status in {400, 413, 422}:
        return Reply(Answer.REFUSED, message)
    if status in {401, 408, 429, 502, 503, 504}:  # 401: another writer may have other keys or another clock.
        return Reply(Answer.UNAVAILABLE, message)
    return Reply(Answer.FAILED, f"status {status}: {message}")


def _message(body: bytes) -> str:
    try:
        found = json.loads(body)
        return str(found["message"])[:500]
    except (ValueError, KeyError, TypeError):
        return body[:200].decode("utf-8", "replace")
