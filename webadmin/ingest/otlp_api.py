"""OTLP profiles over HTTP. Source: profile API format sheet, section 4."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt

from engine.ingest.otlp import decode_otlp
from webadmin.base.compressed_bodies import UnreadableBody, read_body
from webadmin.base.push_rejected import PushRejected
from webadmin.base.senders import Sender
from webadmin.ingest.plain_answers import otlp_status, text_error
from webadmin.ingest.receive import body_limit, identify, receive, refuse, unread

PROTO = "application/x-protobuf"
JSON = "application/json"
TYPES = {PROTO, "application/protobuf", JSON}
_TAKEN = f"content type must be {PROTO} or {JSON}"
_GRPC = "gRPC is not served here: use the OTLP/HTTP exporter with the path /v1development/profiles"


@csrf_exempt
def export(request: HttpRequest) -> HttpResponse:
    """Store the profiles of an ExportProfilesServiceRequest.

    The response is the empty message in protobuf, also for requests in JSON.
    """
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    kind = request.headers.get("Content-Type") or ""
    try:
        sender = identify(request)
        if kind not in TYPES:
            message = _GRPC if kind.startswith("application/grpc") else _TAKEN
            refused = refuse(sender, "invalid_argument", "content_type", message)
            return text_error(refused, 415)
        body = _body(request, sender)
        receive(
            sender,
            len(body),
            lambda limits, now_ns: decode_otlp(body, is_json=kind == JSON, limits=limits, now_ns=now_ns),
        )
    except PushRejected as error:
        return text_error(error, otlp_status(error))
    return HttpResponse(b"", content_type=PROTO)


def _body(request: HttpRequest, sender: Sender) -> bytes:
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"gzip", "identity", ""}:
        message = f"unknown Content-Encoding {encoding[:20]!r}: send gzip or none"
        raise refuse(sender, "invalid_argument", "content_encoding", message)
    try:
        return read_body(request, gzipped=encoding == "gzip", limit=body_limit(sender))
    except UnreadableBody as error:
        raise unread(sender, error) from error
