"""HTTP/1.1 with deadlines: a client that is slow costs a connection for a bounded time, and never a thread.

uvicorn closes idle connections, but waits for ever for the rest of headers or of a body, and for a client that does not
read its answer. Every server of ours that runs on uvicorn uses this protocol.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADER_SECONDS = 10.0
"""From the connection, or from the first byte of a further request, to the end of its headers; while the request before
is being answered, longer."""
HEADER_BYTES_MAX = 64 << 10
HEADERS_MAX = 100
BODY_SECONDS = 20.0
"""For a body, beside the time that its bytes take at BODY_BYTES_PER_SECOND."""
BODY_BYTES_PER_SECOND = 32 << 10
ANSWER_SECONDS = 60.0
"""In this time a client takes ANSWER_BYTES of an answer that waits for it, or all of it."""
ANSWER_BYTES = 32 << 10
CONNECTION_KEY = "lithify.connection"
"""Where the scope of a request has its connection."""

_REFUSALS = {408: b"Request Timeout", 431: b"Request Header Fields Too Large", 503: b"Service Unavailable"}


class _TimedFlow(FlowControl):
    """Sums the time in which the server did not read, which is not charged to the client."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._paused_at = 0.0
        self._paused_s = 0.0

    def paused_seconds(self) -> float:
        """Return for how long reading was paused since the connection was made."""
        return self._paused_s + (self._loop.time() - self._paused_at if self.read_paused else 0.0)

    def pause_reading(self) -> None:
        """Stop reading."""
        if not self.read_paused:
            self._paused_at = self._loop.time()
        super().pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self.read_paused:
            self._paused_s += self._loop.time() - self._paused_at
        super().resume_reading()


class DeadlineProtocol(HttpToolsProtocol):
    """One connection. While a request is read there is one timer; an answer that is not taken has its own."""

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
        """Say whether the client has left or was given up."""
        return self.transport is None or self.transport.is_closing()

    def give_up(self, status: int) -> None:
        """Refuse the request that is being read and close; without a word if an answer is on its way."""
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
        """Start the clock of the first request's headers."""
        super().connection_made(transport)
        self.flow = self._timed = _TimedFlow(transport, self.loop)
        self._begin_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clocks."""
        self._stop_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came; bytes before a request, too, are the beginning of its headers, unless one is being answered.

        What came together with the end of another request is not counted as headers: it is at most one read.
        """
        if self._read_timer is None and not self._is_answering:
            self._begin_headers()
        self._header_bytes += len(data)
        super().data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES_MAX:
            self.give_up(431)

    def on_message_begin(self) -> None:
        """Name the connection to the application."""
        super().on_message_begin()
        self.scope[CONNECTION_KEY] = self  # type: ignore[typeddict-unknown-key]
        if not self._in_headers:  # a request that came before the one before it was answered
            self._begin_headers()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header. ValueError, which is answered with 400, when there are too many."""
        if len(self.headers) >= HEADERS_MAX:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Start the clock of the body."""
        self._in_headers = False
        self._body_bytes = 0
        self._body_began_at = self.loop.time() - self._timed.paused_seconds()
        self._set_read_timer(self.body_seconds, self._check_body)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Count what came."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Stop the clock: what follows is the application's time, then that of an idle connection."""
        self._stop_read_timer()
        super().on_message_complete()

    def pause_writing(self) -> None:
        """Start the clock of the client that does not read."""
        super().pause_writing()
        self._unsent_bytes = self.transport.get_write_buffer_size()
        self._write_timer = self.loop.call_later(self.answer_seconds, self._check_answer)

    def resume_writing(self) -> None:
        """Stop it."""
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
        """Give up headers that are late; not while a request is being answered, which would lose its answer."""
        if self._is_answering:
            self._set_read_timer(self.header_seconds, self._check_headers)
        else:
            self.give_up(408)

    def _check_body(self) -> None:
        """Give up a body that is later than its bytes explain; else look again when it would be."""
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
