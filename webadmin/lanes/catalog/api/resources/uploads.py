"""Receive the bytes of an object and write them to the object store in pieces, at most two in memory.

The SDK's writer sends the bytes as the body, its generated client as a file in a form. The object becomes visible when
it is stored completely. If the branch refuses the entry and no written row may still name the object, it is deleted at
once; otherwise garbage collection decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http import HttpResponse
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from engine.core.errors import LithifyError
from engine.formats.ranges.object_entry import ObjectEntry
from engine.protocol.fields import Fields
from engine.storage import ObjectWriter
from webadmin.base.compressed_bodies import Readable
from webadmin.base.database import dialect
from webadmin.lanes.catalog.api import shapes
from webadmin.lanes.catalog.api.answers import answer
from webadmin.lanes.catalog.api.calls import Call, metadata_of
from webadmin.lanes.catalog.api.conditions import check_early, condition_of
from webadmin.lanes.catalog.api.errors import BodyRefused, RequestRefused
from webadmin.lanes.catalog.api.issued_names import new_name
from webadmin.lanes.catalog.api.request_bodies import PIECE_BYTES, body_of, check_whole, declared_length
from webadmin.lanes.catalog.places import catalog_store, data_prefix_of, folder_of
from webadmin.lanes.catalog.services.write_objects import WrittenRows, put_entry

FORM = "multipart/form-data"
FIELD = "content"
METADATA_HEADER = "x-lakefs-meta-"
CONTENT_TYPE_MAX = 255
PLAIN = "application/octet-stream"


def upload(call: Call) -> HttpResponse:
    """Store an object and add its entry to a branch."""
    call.refuse("storageClass")
    key, condition = call.path(), condition_of(call)
    metadata, content_type = _metadata(call), _content_type(call)
    check_early(call, key, condition)
    now_ms = dialect.clock_ms()
    place = data_prefix_of(call.repository) + new_name(now_ms)
    received = _receive(call, place)
    stored = ObjectEntry(
        address=place.removeprefix(folder_of(call.repository)),
        size=received.size,
        checksum=received.checksum.hexdigest(),
        written_at=now_ms / 1000,
        content_type=received.content_type or content_type,
        metadata=metadata,
    )
    written = WrittenRows()
    try:
        made = put_entry(
            call.repository,
            call.names["branch"],
            key,
            stored,
            if_absent=condition.is_absent,
            if_match=condition.checksum,
            written=written,
        )
    except LithifyError:
        if not written.count:
            catalog_store().delete(place)
        raise
    return answer(shapes.stats_of(call.repository, made), 201)


class _Received:
    """Write pieces to the store and compute their size and checksum."""

    def __init__(self, writer: ObjectWriter) -> None:
        self._writer = writer
        # The checksum is the ETag that clients compare; it has no security purpose.
        self.checksum = hashlib.md5(usedforsecurity=False)
        self.size = 0
        self.content_type = ""

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > settings.CATALOG_OBJECT_BYTES:
            raise too_large()
        self.checksum.update(piece)
        self._writer.write(piece)


def too_large() -> BodyRefused:
    """Return the error for an object larger than the limit."""
    return BodyRefused(f"an object may have {settings.CATALOG_OBJECT_BYTES} bytes: upload larger ones and link them")


def _receive(call: Call, place: str) -> _Received:
    if (declared_length(call.request) or 0) > settings.CATALOG_OBJECT_BYTES + PIECE_BYTES:
        raise too_large()
    with catalog_store().open_writer(place) as writer:
        received = _Received(writer)
        stream = _Counted(body_of(call.request))
        if call.request.content_type == FORM:
            _take_form(call, stream, received)
        else:
            for piece in _pieces(stream):
                received.take(piece)
        check_whole(call.request, stream.size)
    return received


class _Counted:
    """A stream that counts the bytes read from it."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self.size = 0

    def read(self, size: int, /) -> bytes:
        try:
            piece = self._stream.read(size)
        except OSError as error:
            raise RequestRefused(f"the body breaks off after {self.size} bytes: {error}") from error
        self.size += len(piece)
        return piece


def _pieces(stream: Readable) -> Iterator[bytes]:
    while piece := stream.read(PIECE_BYTES):
        yield piece


class _FormHandler(FileUploadHandler):
    """Pass the single file of a form to the store."""

    chunk_size = PIECE_BYTES

    def __init__(self, received: _Received) -> None:
        super().__init__()
        self._received = received
        self.files = 0

    def new_file(self, field_name: str, *args: Any, **kwargs: Any) -> None:
        super().new_file(field_name, *args, **kwargs)
        self.files += 1
        if field_name != FIELD or self.files > 1:
            raise RequestRefused(f"the form has one file, named {FIELD}")
        self._received.content_type = str(self.content_type or "")[:CONTENT_TYPE_MAX]

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._received.take(bytes(raw_data))

    def file_complete(self, file_size: int) -> None:
        """Return None: the file is not kept in memory."""


def _take_form(call: Call, stream: _Counted, received: _Received) -> None:
    handler = _FormHandler(received)
    # Django's form parser reads nothing if the content length is missing.
    meta = call.request.META | {"CONTENT_LENGTH": str(declared_length(call.request) or PIECE_BYTES)}
    try:
        MultiPartParser(meta, stream, [handler], "utf-8").parse()  # type: ignore[arg-type]  # it needs read() only
    except (MultiPartParserError, SuspiciousOperation) as error:
        raise RequestRefused(f"the form cannot be read: {error}") from error
    if not handler.files:
        raise RequestRefused(f"the form has no file named {FIELD}")


def _content_type(call: Call) -> str:
    header = call.request.headers.get("Content-Type", "")
    if len(header) > CONTENT_TYPE_MAX:
        raise RequestRefused(f"a content type has at most {CONTENT_TYPE_MAX} characters")
    return PLAIN if call.request.content_type == FORM else header or PLAIN


def _metadata(call: Call) -> dict[str, str]:
    found = {
        name.lower().removeprefix(METADATA_HEADER): value
        for name, value in call.request.headers.items()
        if name.lower().startswith(METADATA_HEADER)
    }
    return metadata_of(Fields("headers", {"metadata": found}))
