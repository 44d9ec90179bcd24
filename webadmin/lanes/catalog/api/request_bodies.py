"""Bodies of requests, read within bounds. The SDK's writer sends files in chunks, of a length nobody knows before.

Django gives no body where no length is told; the web process has taken the chunks apart and says that the input ends
by itself.
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
    """Return where the body of a request is read from."""
    if "HTTP_TRANSFER_ENCODING" not in request.META:
        return request
    if not request.META.get("wsgi.input_terminated"):
        raise RequestRefused("this server needs the length of a body before the body")
    stream: Readable = request.META["wsgi.input"]
    return stream


def told_length(request: HttpRequest) -> int | None:
    """Return how many bytes the body will have, None if it comes in chunks."""
    if "HTTP_TRANSFER_ENCODING" in request.META:
        return None
    told = request.META.get("CONTENT_LENGTH") or "0"
    return int(told) if told.isascii() and told.isdigit() else 0


def json_of(stream: Readable) -> Any:
    """Return the JSON document of a body."""
    try:
        return BoundedJSONParser().parse(stream)
    except ParseError as error:
        raise RequestRefused(str(error.detail)) from error


def check_whole(request: HttpRequest, read: int) -> None:
    """Raise RequestRefused if fewer bytes came than were told: the client has gone."""
    told = told_length(request)
    if told is not None and read < told:
        raise RequestRefused(f"the body ends after {read} of {told} bytes")
