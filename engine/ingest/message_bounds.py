"""Limit the number of messages of a request before parsing: an empty message is 2 bytes and costs 100 in memory."""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError

from engine.ingest.model import Refused

REASON = "malformed_request"
FIELDS_MAX = 400_000
"""Maximum fields of a request, at any depth."""
JSON_BYTES_MAX = 32 << 20
JSON_OBJECTS_MAX = 20_000
"""Maximum objects of a JSON request; each takes tens of microseconds."""
JSON_VALUES_MAX = 500_000
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def check_message(body: bytes, descriptor: Descriptor, *, first_max: int, fields_max: int = FIELDS_MAX) -> None:
    """Raise Refused if a message has more than ``first_max`` top-level fields or ``fields_max`` in total.

    Raises DecodeError for an invalid message. Nested fields are counted only if their number could exceed the limit.
    """
    data = memoryview(body)
    if _count(data, descriptor, first_max, is_deep=False) < 0:
        raise Refused(REASON, f"more than {first_max} series or tables in one request: send several requests")
    # Each field has a tag and a value.
    if len(body) > 2 * fields_max and _count(data, descriptor, fields_max, is_deep=True) < 0:
        raise Refused(REASON, f"the request has more than {fields_max} fields: send several requests")


def check_json(body: bytes, *, objects_max: int = JSON_OBJECTS_MAX) -> None:
    """Raise Refused if a JSON document is too large or has too many objects or values; braces in strings count."""
    if len(body) > JSON_BYTES_MAX:
        raise Refused(REASON, f"a JSON request has at most {JSON_BYTES_MAX} bytes: send protobuf")
    if body.count(b"{") > objects_max or body.count(b",") + body.count(b"[") > JSON_VALUES_MAX:
        text = f"a JSON request has at most {objects_max} objects and {JSON_VALUES_MAX} values: send protobuf"
        raise Refused(REASON, text)


def _count(data: memoryview, descriptor: Descriptor, left: int, *, is_deep: bool) -> int:
    """Return the remaining number of fields; negative if the limit is exceeded."""
    fields, position, end = descriptor.fields_by_number, 0, len(data)
    while position < end and left >= 0:
        tag, position = _varint(data, position)
        left -= 1
        kind = tag & 7
        if kind == _VARINT:
            _, position = _varint(data, position)
        elif kind == _LENGTH:
            size, position = _varint(data, position)
            if size > end - position:
                raise _malformed()
            field = fields.get(tag >> 3) if is_deep else None
            inner = field.message_type if field is not None else None
            if inner is not None:
                left = _count(data[position : position + size], inner, left, is_deep=True)
            position += size
        elif kind in (_FIXED64, _FIXED32):
            position += 8 if kind == _FIXED64 else 4
        else:  # groups, which no message here has
            raise _malformed()
    return left


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position
            shift += 7
            if shift > 63:
                raise _malformed()
    except IndexError as error:
        raise _malformed() from error


def _malformed() -> DecodeError:
    return DecodeError("a field has no end, or is of a kind that no message here has")
