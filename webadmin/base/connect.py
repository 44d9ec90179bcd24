"""Connect's unary calls over HTTP/1.1, as profilers and viewers send them.

Source: profile API format sheet, section 1. A handler receives bytes and returns a protobuf message; this module
handles the transport: methods, content types, encodings, deadlines, and errors in Connect's form.
"""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from google.protobuf import json_format
from google.protobuf.message import Message

from webadmin.base.compressed_bodies import BodyBreaksOff, BodyTooLarge, UnreadableBody, read_body

log = logging.getLogger(__name__)

PROTO, JSON = "application/proto", "application/json"
BODY_BYTES_MAX = 256 << 20
REASON_HEADER = "Lithify-Reason"
GZIP_LEVEL = 1
GZIP_WORTH_BYTES = 1024
"""A smaller response is sent uncompressed: compressing costs more than it saves."""
RETRY_AFTER_S = 1
STATUSES = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}
"""HTTP status of each of Connect's codes."""


class ConnectError(Exception):
    """A call that fails with one of Connect's codes; ``message`` is for humans, ``reason`` a label for metrics.

    ``retry_after_s`` is when to retry if the code is ``unavailable`` or ``resource_exhausted``; ``work_bytes`` is what
    reading the call's body cost.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        retry_after_s: int = RETRY_AFTER_S,
        work_bytes: int = 0,
    ) -> None:
        super().__init__(message)
        assert code in STATUSES
        self.code = code
        self.message = message
        self.reason = reason or code
        self.retry_after_s = retry_after_s
        self.work_bytes = work_bytes


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the HTTP request, its decompressed body, the body's encoding, and its deadline.

    ``deadline`` is a reading of ``time.monotonic``, None if the client set none; ``sender`` is the result of ``admit``.
    A handler may add to ``answer_headers``, and to ``held`` objects to keep until the response is written.
    """

    request: HttpRequest
    body: bytes
    is_json: bool
    deadline: float | None
    sender: Any = None
    answer_headers: dict[str, str] = field(default_factory=dict)
    held: ExitStack = field(default_factory=ExitStack)

    def seconds_left(self, otherwise: float) -> float:
        """Return the seconds until the client's deadline; ``otherwise`` if it set none."""
        return otherwise if self.deadline is None else max(0.0, self.deadline - time.monotonic())


Handler = Callable[[Call], Message]
View = Callable[[HttpRequest], HttpResponse]


@dataclass(frozen=True, slots=True)
class Gate:
    """Admission of calls. ``admit`` receives a request before its body is read and returns the call's sender.

    ``body_bytes_max`` returns the sender's limit for a decompressed body; ``count`` is called for calls whose body
    could not be read, with the bytes that these cost.
    """

    admit: Callable[[HttpRequest], Any] = lambda request: None
    body_bytes_max: Callable[[Any], int] = lambda sender: BODY_BYTES_MAX
    count: Callable[[Any, str, str, int], None] = lambda sender, reason, message, work_bytes: None


def unary(handler: Handler, gate: Gate | None = None) -> View:
    """Return the view of one method; ``handler`` may raise ConnectError."""
    gate = gate or Gate()

    @csrf_exempt
    def view(request: HttpRequest) -> HttpResponse:
        if request.method != "POST":
            return HttpResponse(status=405, headers={"Allow": "POST"})
        kind = (request.content_type or "").lower()
        try:
            sender = gate.admit(request)
            if kind not in {PROTO, JSON}:
                gate.count(sender, "content_type", f"content type {kind[:100]!r}", 0)
                return HttpResponse(status=415, headers={"Accept-Post": f"{JSON}, {PROTO}"})
            try:
                call = _call(request, sender, is_json=kind == JSON, body_bytes_max=gate.body_bytes_max(sender))
            except ConnectError as error:
                gate.count(sender, error.reason, error.message, error.work_bytes)
                raise
            with call.held:
                return _answer(call, kind, handler(call))
        except ConnectError as error:
            return refusal(error)
        except Exception:
            log.exception("call_failed path=%s", request.path_info)
            return error_answer("internal", "the server failed; its log says why")

    return view


def refusal(error: ConnectError) -> HttpResponse:
    """Return the response for an error."""
    return error_answer(error.code, error.message, reason=error.reason, retry_after_s=error.retry_after_s)


def error_answer(code: str, message: str, *, reason: str = "", retry_after_s: int = RETRY_AFTER_S) -> HttpResponse:
    """Return an error in Connect's form, never compressed; a header holds our own, more specific code."""
    body = json.dumps({"code": code, "message": message}, ensure_ascii=False).encode("utf-8", "replace")
    headers = {REASON_HEADER: reason or code}
    if code in ("unavailable", "resource_exhausted"):
        headers["Retry-After"] = str(retry_after_s)
    return HttpResponse(body, status=STATUSES[code], content_type=JSON, headers=headers)


def _call(request: HttpRequest, sender: Any, *, is_json: bool, body_bytes_max: int) -> Call:
    version = request.headers.get("Connect-Protocol-Version", "1")
    if version != "1":
        raise ConnectError(
            "invalid_argument", f"Connect-Protocol-Version must be 1, not {version[:20]!r}", reason="protocol_version"
        )
    deadline = _deadline(request.headers.get("Connect-Timeout-Ms"))
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"gzip", "identity", ""}:
        message = f"unknown compression {encoding[:20]!r}: supported encodings are gzip and identity"
        raise ConnectError("unimplemented", message, reason="content_encoding")
    try:
        body = read_body(request, gzipped=encoding == "gzip", limit=body_bytes_max)
    except BodyTooLarge as error:
        text, work = str(error), error.work_bytes
        raise ConnectError("resource_exhausted", text, reason="body_size_limit", work_bytes=work) from error
    except BodyBreaksOff as error:
        raise ConnectError("canceled", str(error), reason="body_breaks_off", work_bytes=error.work_bytes) from error
    except UnreadableBody as error:
        raise ConnectError("invalid_argument", str(error), reason="bad_gzip", work_bytes=error.work_bytes) from error
    if is_json and not body.strip():
        raise ConnectError(
            "invalid_argument", "the body is empty; JSON needs an object, {} at least", reason="empty_body"
        )
    return Call(request, body, is_json, deadline, sender)


def _deadline(text: str | None) -> float | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        message = f"Connect-Timeout-Ms must be up to 10 digits, not {text[:20]!r}"
        raise ConnectError("invalid_argument", message, reason="bad_timeout")
    return time.monotonic() + int(text) / 1000


def _answer(call: Call, kind: str, message: Message) -> HttpResponse:
    if call.deadline is not None and time.monotonic() > call.deadline:
        raise ConnectError("deadline_exceeded", "the answer came after the client's deadline")
    body = json_format.MessageToJson(message, indent=None).encode() if kind == JSON else message.SerializeToString()
    return answer(call.request, body, kind, call.answer_headers)


def answer(request: HttpRequest, body: bytes, kind: str, headers: Mapping[str, str]) -> HttpResponse:
    """Return a response, compressed if the client accepts that and the body is large enough."""
    sent = {"Accept-Encoding": "gzip", **headers}
    # A client that sends gzip without an Accept-Encoding header (one SDK) gets a plain response, which is always valid.
    if "gzip" in request.headers.get("Accept-Encoding", "") and len(body) >= GZIP_WORTH_BYTES:
        body, sent["Content-Encoding"] = gzip.compress(body, GZIP_LEVEL, mtime=0), "gzip"
    return HttpResponse(body, content_type=kind, headers=sent)
