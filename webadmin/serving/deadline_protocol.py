"""HTTP/1.1 with deadlines: a slow client occupies a connection for a bounded time, and never a thread.

uvicorn closes idle connections, but waits without limit for the rest of headers or of a body, and for a client that
does not read its answer. All our servers on uvicorn use this protocol.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of its headers; longer while the
previous request is being answered.
"""
HEADER_BYTES_MAX = 64 << 10
HEADERS_MAX = 100
BODY_SECONDS = 20.0
"""For a body, in addition to the time of its bytes at BODY_BYTES_PER_SECOND."""
BODY_BYTES_PER_SECOND = 32 << 10
ANSWER_SECONDS = 60.0
"""Within this time a client must read ANSWER_BYTES of a buffered answer, or all of it."""
ANSWER_BYTES = 32 << 10
CONNECTION_KEY = "lithify.connection"
"""The key of the connection in the scope of a request."""

_REFUSALS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


class _TimedFlow(FlowControl):
    """Measures the time in which the server did not read, which does not count towards the client's deadlines."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._paused_at = 0.0
        self._paused_s = 0.0

    def paused_seconds(self) -> float:
        """Return for how many seconds reading was paused since the connection was made."""
        return self._paused_s + (self._loop.time() - self._paused_at if self.read_paused else 0.0)

    def pause_reading(self) -> None:
        """Pause reading."""
        if not self.read_paused:
            self._paused_at = self._loop.time()
        super().pause_reading()

    def resume_reading(self) -> None:
        """Resume reading."""
        if self.read_paused:
            self._paused_s += self._loop.time() - self._paused_at
        super().resume_reading()


class DeadlineProtocol(HttpToolsProtocol):
    """A connection. While a request is read there is one timer; an answer that the client does not read has its own."""

    header_seconds = HEADER_SECONDS
    body_seconds = BODY_SECONDS
    body_bytes_per_second = BODY_BYTES_PER_SECOND
    answer_seconds = ANSWER_SECONDS

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._read_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._in_headers = False
        self._header_bytes = 0
        self._body_bytes = 0
        self._body_began_at = 0.0
        self._unsent_bytes = 0

    @property
    def is_closed(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self.transport is None or self.transport.is_closing()

    def give_up(self, status: int) -> None:
        """Reject the request that is being read and close; without a response if another answer is being sent."""
        if self.is_closed:
            return
        self._stop_timers()
        if self._in_headers:
            is_answerable = not self._is_answering
        else:
            is_answerable = not self.cycle.response_started
        if not is_answerable:
            self.transport.abort()
            return
        refusal = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n" % (status, _REFUSALS[status])
        self.transport.write(refusal)
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request's headers."""
        super().connection_made(transport)
        self.flow = self._timed = _TimedFlow(transport, self.loop)
        self._begin_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse received data; bytes before a request count as its headers, unless another request is being answered.

        Data that arrived together with the end of another request is not counted as headers: it is at most one read.
        """
        if self._read_timer is None and not self._is_answering:
            self._begin_headers()
        self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES_MAX:
            self.give_up(431)

    def on_message_begin(self) -> None:
        """Add the connection to the scope of the request."""
        super().on_message_begin()
        self.scope[CONNECTION_KEY] = self  # type: ignore[literal-required]
        if not self._in_headers:  # a request that arrived before the previous one was answered
            self._begin_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header. Raises ValueError, which is answered with 400, if there are too many."""
        if len(self.headers) >= HEADERS_MAX:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the timer of the body."""
        self._in_headers = False
        self._body_bytes = 0
        self._body_began_at = self.loop.time() - self._timed.paused_seconds()
        self._set_read_timer(self.body_seconds, self._check_body)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count the received bytes."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the timer: the application's time follows, then that of an idle connection."""
        self._stop_read_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the timer of a client that does not read."""
        super().pause_writing()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.answer_seconds, self._check_answer)

    def resume_writing(self) -> None:
        """Stop the timer of the client."""
        super().resume_writing()
        self._stop_write_timer()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_headers(self) -> None:
        self._in_headers = True
        self._header_bytes = 0
        self._set_read_timer(self.header_seconds, self._check_headers)

    def _check_headers(self) -> None:
        """Reject late headers, except while a request is being answered, whose answer would be lost."""
        if self._is_answering:
            self._set_read_timer(self.header_seconds, self._check_headers)
        else:
            self.give_up(408)

    def _check_body(self) -> None:
        """Reject a body that exceeds the time for its bytes; otherwise check again when it would."""
        now = self.loop.time() - self._timed.paused_seconds()
        due = self._body_began_at + self.body_seconds + self._body_bytes / self.body_bytes_per_second
        if now >= due:
            self.give_up(408)
        else:
            self._set_read_timer(max(0.05, due - now), self._check_body)

    def _check_answer(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if unsent > self._unsent_bytes - ANSWER_BYTES:
            self.transport.abort()
            return
        self._unsent_bytes = unsent
        self._write_timer = self.loop.call_later(self.answer_seconds, self._check_answer)

    def _set_read_timer(self, seconds: float, callback: Any) -> None:
        self._stop_read_timer()
        self._read_timer = self.loop.call_later(seconds, callback)

    def _stop_timers(self) -> None:
        self._stop_read_timer()
        self._stop_write_timer()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
