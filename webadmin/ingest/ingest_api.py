"""``POST /ingest``: pushes of older SDKs and of Go, Java, .NET and Node.

Source: profile API format sheet, section 3.
"""

from __future__ import annotations

import io
from typing import Any

from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.datastructures import MultiValueDictKeyError
from django.views.decorators.csrf import csrf_exempt

from engine.ingest.ingest_request import (
    FORM_TYPE,
    SPY_DEFAULT,
    UNSUPPORTED,
    IngestRequest,
    decode_ingest,
    rate_of,
)
from engine.ingest.push import DecodedPush
from webadmin.base.compressed_bodies import UnreadableBody, read_body
from webadmin.base.database.database_clock import database_clock_ms
from webadmin.base.push_rejected import PushRejected
from webadmin.base.query_times import parse_time
from webadmin.base.senders import Sender
from webadmin.ingest.plain_answers import ingest_status, json_error
from webadmin.ingest.receive import body_limit, identify, receive, refuse, unread

PARTS_MAX = 20


@csrf_exempt
def ingest(request: HttpRequest) -> HttpResponse:
    """Store the profiles of one request."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    is_pprof = request.GET.get("format") == "pprof" or FORM_TYPE in (request.headers.get("Content-Type") or "")
    try:
        sender = identify(request)
        body = _body(request, sender)
        request_values = _asked(request, body, sender)
        receive(
            sender,
            len(body),
            lambda limits, now_ns: DecodedPush(tuple(decode_ingest(request_values, limits, now_ns=now_ns)), ()),
        )
    except PushRejected as error:
        return json_error(error, ingest_status(error, is_pprof=is_pprof))
    return HttpResponse()


def _body(request: HttpRequest, sender: Sender) -> bytes:
    try:
        # Content-Encoding is not reliable here: a gzipped pprof is detected by its first bytes.
        return read_body(request, gzipped=False, limit=body_limit(sender))
    except UnreadableBody as error:
        raise unread(sender, error) from error


def _asked(request: HttpRequest, body: bytes, sender: Sender) -> IngestRequest:
    query, now_s = request.GET, database_clock_ms() / 1000
    content_type = request.headers.get("Content-Type") or ""
    form = query.get("format", "")
    is_form = FORM_TYPE in content_type and form not in {"pprof", "trie", "tree", "lines", "speedscope"}
    return IngestRequest(
        name=query.get("name", ""),
        from_ns=int(parse_time(query.get("from", ""), now_s) * 1_000_000) * 1_000,
        body=b"" if is_form else body,
        parts=_parts(content_type, body, sender) if is_form else {},
        format=form,
        content_type=content_type,
        spy=query.get("spyName", "") or SPY_DEFAULT,
        rate=rate_of(query.get("sampleRate", "")),
    )


def _parts(content_type: str, body: bytes, sender: Sender) -> dict[str, bytes]:
    """Return the file parts of a form by name; fields without a file name are ignored."""
    about = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": len(body)}
    collector = _Collector()
    try:
        MultiPartParser(about, io.BytesIO(body), [collector]).parse()
    except (MultiPartParserError, MultiValueDictKeyError, ValueError) as error:
        raise refuse(sender, "invalid_argument", UNSUPPORTED, f"the form cannot be read: {error}") from error
    except Exception as error:  # Django raises unrelated exception types for too many fields or parts.
        if type(error).__module__ != "django.core.exceptions":
            raise
        raise refuse(sender, "invalid_argument", UNSUPPORTED, f"the form cannot be read: {error}") from error
    return collector.parts


class _Collector(FileUploadHandler):
    """Keep file parts in memory; the whole body is already in memory and its size is limited."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: dict[str, bytes] = {}
        self._chunks: list[bytes] = []

    def new_file(self, *arguments: Any, **options: Any) -> None:
        super().new_file(*arguments, **options)
        self._chunks = []

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._chunks.append(raw_data)

    def file_complete(self, file_size: int) -> None:
        if len(self.parts) < PARTS_MAX:
            self.parts[self.field_name or ""] = b"".join(self._chunks)
