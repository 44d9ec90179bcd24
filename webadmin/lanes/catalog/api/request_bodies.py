"""Read request bodies within limits. The SDK's writer sends files in chunks, without a content length.

Django reads no body without a content length; the web server has decoded the chunks and sets ``wsgi.input_terminated``.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from rest_framework.exceptions import ParseError

from webadmin.base.compressed_bodies import Readable
from webadmin.base.request_bounds import BoundedJSONParser
from webadmin.lanes.catalog.api.errors import RequestRefused

PIECE_BYTES = 1 << 20


def body_of(request: HttpRequest) -> Readable:
    """Return the stream of a request's body."""
    if "HTTP_TRANSFER_ENCODING" not in request.META:
        return request
    if not request.META.get("wsgi.input_terminated"):
        raise RequestRefused("this server needs the length of a body before the body")
    stream: Readable = request.META["wsgi.input"]
    return stream


def declared_length(request: HttpRequest) -> int | None:
    """Return the declared length of the body in bytes, None if it is chunked."""
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return None
    header = request.META.get("CONTENT_LENGTH") or "0"
    return int(header) if header.isascii() and header.isdigit() else 0


def json_of(stream: Readable) -> Any:
    """Return the JSON document of a body."""
    try:
        return BoundedJSONParser().parse(stream)
    except ParseError as error:
        raise RequestRefused(str(error.detail)) from error


def check_whole(request: HttpRequest, read: int) -> None:
    """Raise RequestRefused if fewer bytes than declared were read: the client disconnected."""
    length = declared_length(request)
    if length is not None and read < length:
        raise RequestRefused(f"the body ends after {read} of {length} bytes")
