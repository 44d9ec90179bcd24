"""Serve the bytes of an object, whole or a range, in pieces of bounded size.

Headers keep browsers from rendering uploaded content as a page of this site.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import http_date

from engine.formats.ranges.object_entry import ObjectEntry
from engine.storage import InvalidKey, InvalidRange, ObjectNotFound, ObjectStore, is_local
from webadmin.base.access.tenant_places import shown_place_of_tenant
from webadmin.lanes.catalog.api.calls import Call
from webadmin.lanes.catalog.api.errors import DataMissing, RangeRefused
from webadmin.lanes.catalog.errors import AddressRefused
from webadmin.lanes.catalog.object_places import object_at
from webadmin.lanes.catalog.services.read_objects import get_entry

PIECE_BYTES = 4 << 20
PLAIN = "application/octet-stream"
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


@dataclass(frozen=True, slots=True)
class Part:
    """A byte range: ``length`` bytes from ``start`` on."""

    start: int
    length: int
    is_whole: bool


def download(call: Call) -> HttpResponseBase:
    """Return the bytes of an object."""
    call.refuse("presign")
    stored = _stored(call)
    headers = _headers(stored)
    if call.request.headers.get("If-None-Match", "").strip() in (headers["ETag"], stored.checksum, "*"):
        return HttpResponse(status=304, headers=headers)
    part = part_of(call.request.headers.get("Range"), stored.size)
    pieces = _read(call, stored, part)
    response = StreamingHttpResponse(pieces, status=200 if part.is_whole else 206, headers=headers)
    return _measured(response, stored, part)


def head(call: Call) -> HttpResponseBase:
    """Return the headers of an object's bytes."""
    stored = _stored(call)
    part = part_of(call.request.headers.get("Range"), stored.size)
    return _measured(HttpResponse(status=200 if part.is_whole else 206, headers=_headers(stored)), stored, part)


def part_of(header: str | None, size: int) -> Part:
    """Return the range of a ``Range`` header. Raises RangeRefused.

    A header that is invalid or requests several ranges is ignored, as HTTP specifies.
    """
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match[0] == "bytes=-":
        return Part(0, size, is_whole=True)
    first, last = match[1], match[2]
    if not first:
        length = min(int(last), size)
        start = size - length
    else:
        start = int(first)
        if last and int(last) < start:
            return Part(0, size, is_whole=True)
        length = min(int(last or size), size - 1) - start + 1
    if length <= 0:
        raise RangeRefused(size)
    return Part(start, length, is_whole=False)


def _stored(call: Call) -> ObjectEntry:
    return ObjectEntry.from_payload(get_entry(call.repository, call.names["ref"], call.path()).payload)


def _headers(stored: ObjectEntry) -> dict[str, str]:
    return {
        "ETag": f'"{stored.checksum}"',
        "Last-Modified": http_date(stored.written_at),
        "Content-Type": stored.content_type or PLAIN,
        "Accept-Ranges": "bytes",
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
    }


def _measured(response: HttpResponseBase, stored: ObjectEntry, part: Part) -> HttpResponseBase:
    response.headers["Content-Length"] = str(part.length)
    if not part.is_whole:
        response.headers["Content-Range"] = f"bytes {part.start}-{part.start + part.length - 1}/{stored.size}"
    return response


def _read(call: Call, stored: ObjectEntry, part: Part) -> Iterator[bytes]:
    """Return the pieces of an object; the first is read at once, while an error can still change the status."""
    path, place = call.text("path"), stored.address
    if not stored.is_relative and is_local(place):
        place = f"its place in {shown_place_of_tenant(call.repository.tenant)}"
    try:
        store, key = object_at(call.repository, stored)
        first = store.get_range(key, part.start, min(part.length, PIECE_BYTES))
    except (ObjectNotFound, InvalidKey, AddressRefused) as error:
        raise DataMissing(f"the bytes of {path} are gone: nothing lies at {place}") from error
    except InvalidRange as error:
        raise DataMissing(f"the bytes of {path} are damaged: {place} has no {stored.size} bytes any more") from error
    return _pieces(store, key, first, part)


def _pieces(store: ObjectStore, key: str, first: bytes, part: Part) -> Iterator[bytes]:
    yield first
    for start in range(part.start + PIECE_BYTES, part.start + part.length, PIECE_BYTES):
        yield store.get_range(key, start, min(part.start + part.length - start, PIECE_BYTES))
