"""ASGI application of the segment writer: one endpoint for pushes, three for monitoring."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from engine.core.errors import LithifyError
from engine.ingest.segments.segment_push import decode_segment_push
from webadmin.base.access.metrics_token import has_metrics_token
from webadmin.ingest.writer.credential import is_authorized
from webadmin.ingest.writer.gathering import Answer
from webadmin.ingest.writer.measures import WriterMeasures
from webadmin.ingest.writer.segment_writer import DRAINING, SegmentWriter

PUSH_PATH = "/internal/v1/segments/push"
BODY_BYTES_MAX = 256 << 20
"""Maximum body size in bytes: that of a distributor's largest push."""
OVERLOADED = Answer(429, "overloaded", "this instance holds as many bytes as it may; send it to the next one")
UNAUTHENTICATED = Answer(
    401,
    "unauthenticated",
    "send what a distributor with the same token keys and clock makes for this instance",
)
CLOSED = Answer(401, "unauthenticated", "send METRICS_TOKEN as a bearer token")
TOO_LARGE = Answer(400, "too_large", f"a push has at most {BODY_BYTES_MAX} bytes")

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Gone(Exception):
    """The client disconnected before the body was complete."""


class WriterSite:
    """Route requests to the writer ``instance``. ``problems`` returns the reasons why the process is not ready."""

    def __init__(
        self, instance: str, writer: SegmentWriter, measures: WriterMeasures, problems: Callable[[], list[str]]
    ) -> None:
        self._instance = instance
        self._writer = writer
        self._measures = measures
        self._problems = problems
        self._reading_bytes = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Respond to one request."""
        path, method = scope["path"], scope["method"]
        if path == PUSH_PATH:
            if method != "POST":
                await _send_answer(send, Answer(405, "method_not_allowed", "use POST"))
                return
            await self._push(scope, receive, send)
        elif method not in ("GET", "HEAD"):
            await _send_answer(send, Answer(404, "not_found", "there is nothing here"))
        elif path == "/healthz":
            await _send(send, 200, b"ok\n", b"text/plain")
        elif path == "/readyz":
            problems = self._problems()
            body = json.dumps({"status": "ready" if not problems else "not ready", "problems": problems})
            await _send(send, 503 if problems else 200, body.encode(), b"application/json")
        elif path == "/metrics":
            if not has_metrics_token(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")):
                await _send_answer(send, CLOSED)
                return
            await _send(send, 200, self._measures.text(), b"text/plain; version=0.0.4; charset=utf-8")
        else:
            await _send_answer(send, Answer(404, "not_found", "there is nothing here"))

    async def _push(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        size = _declared_size(headers)
        refusal = self._refusal(headers, size)
        if refusal is None:
            self._reading_bytes += size
            try:
                answer = await self._take(receive, size)
            except _Gone:
                return
            finally:
                self._reading_bytes -= size
        else:
            self._measures.count_refusal(refusal.code)
            answer = refusal
        await _send_answer(send, answer)

    def _refusal(self, headers: dict[bytes, bytes], size: int) -> Answer | None:
        """Return the response to a push whose body is not read, or None."""
        if not is_authorized(headers.get(b"authorization", b"").decode("latin-1"), self._instance):
            return UNAUTHENTICATED
        if self._writer.is_draining:
            return DRAINING
        if size < 0:
            return Answer(411, "length_required", "send Content-Length")
        if size > BODY_BYTES_MAX:
            return TOO_LARGE
        if not self._writer.has_room(self._reading_bytes + size):
            return OVERLOADED
        return None

    async def _take(self, receive: Receive, size: int) -> Answer:
        """Read the body, store its profiles, and return the outcome once all are durable."""
        body = await _read_body(receive)
        try:
            push = decode_segment_push(body)
        except LithifyError as error:
            self._measures.count_refusal("bad_push")
            return Answer(400, "bad_push", str(error))
        del body
        self._reading_bytes -= size  # The writer counts these bytes from here on.
        try:
            return await self._writer.push(push, size)
        finally:
            self._reading_bytes += size


def _declared_size(headers: dict[bytes, bytes]) -> int:
    """Return the value of Content-Length, -1 without the header."""
    text = headers.get(b"content-length", b"")
    return int(text) if text.isdigit() else -1


async def _read_body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Gone
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _send_answer(send: Send, answer: Answer) -> None:
    body = b"" if answer.is_accepted else json.dumps({"code": answer.code, "message": answer.message}).encode()
    extra = [(b"retry-after", b"1")] if answer.status in (429, 503) else []
    await _send(send, answer.status, body, b"application/json", extra)


async def _send(
    send: Send, status: int, body: bytes, kind: bytes, extra: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *(extra or [])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
