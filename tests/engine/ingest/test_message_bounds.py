"""What a request may hold is bounded before it is parsed, in protobuf and in JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import json_format

from engine.formats.proto import otlp_profiles_pb2, push_pb2
from engine.ingest import message_bounds, otlp_request, push
from engine.ingest.message_bounds import FIELDS_MAX, JSON_BYTES_MAX, JSON_OBJECTS_MAX, check_message
from engine.ingest.model import PushLimits, Refused
from engine.ingest.otlp_request import parse_request
from engine.ingest.push import SERIES_MAX, decode_push

EMPTY = b"\x0a\x00"


class Unparsed(AssertionError):
    """A parser was called."""


def field(number: int, content: bytes) -> bytes:
    """Return a field of up to 2^28 bytes as protobuf spells it."""
    size = len(content)
    digits = bytes((size >> shift & 0x7F) | (0x80 if size >> shift + 7 else 0) for shift in range(0, 28, 7))
    return bytes([number << 3 | 2]) + digits[: max(1, (size.bit_length() + 6) // 7)] + content


@pytest.fixture
def no_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every parser fail: what is refused is refused before."""

    def parse(*arguments: Any, **named: Any) -> None:
        raise Unparsed

    def unparsable(message: Any) -> SimpleNamespace:
        return SimpleNamespace(DESCRIPTOR=message.DESCRIPTOR, ParseFromString=parse)

    pushed, exported = unparsable(push_pb2.PushRequest), unparsable(otlp_profiles_pb2.ExportRequest)
    monkeypatch.setattr(json_format, "Parse", parse)
    monkeypatch.setattr(json, "loads", parse)
    monkeypatch.setattr(push.push_pb2, "PushRequest", lambda: pushed)
    monkeypatch.setattr(otlp_request.otlp, "ExportRequest", lambda: exported)


@pytest.mark.usefixtures("no_parser")
@pytest.mark.parametrize(
    ("body", "is_json"),
    [
        pytest.param(EMPTY * 100_000, False, id="empty series"),
        pytest.param(EMPTY * (SERIES_MAX + 1), False, id="one series too many"),
        pytest.param(field(1, EMPTY * (FIELDS_MAX + 1)), False, id="empty labels"),
        pytest.param(field(1, b"\x12\x00" * (FIELDS_MAX + 1)), False, id="empty samples"),
        pytest.param(b"\x08\x01" * (SERIES_MAX + 1), False, id="unknown fields"),
        pytest.param(b"\x0b\x0c" + EMPTY, False, id="a group, which hides what follows"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", False, id="a length beyond the end"),
        pytest.param(b"\x0a" + b"\x80" * 11, False, id="a length without an end"),
        pytest.param(b'{"series":[' + b",".join([b"{}"] * 100_000) + b"]}", True, id="JSON, empty series"),
        pytest.param(b'{"x":[' + b"1," * 1_000_000 + b"1]}", True, id="JSON, values"),
        pytest.param(b'{"x":' + b"[" * 1_000_000, True, id="JSON, arrays"),
        pytest.param(b'{"x":"' + b"a" * JSON_BYTES_MAX + b'"}', True, id="JSON, bytes"),
    ],
)
def test_a_push_of_too_much_is_refused_before_it_is_parsed(body: bytes, is_json: bool) -> None:
    with pytest.raises(Refused) as refused:
        decode_push(body, is_json=is_json, limits=PushLimits(), now_ns=0)
    assert refused.value.reason == "malformed_request"


@pytest.mark.slow
@pytest.mark.usefixtures("no_parser")
@pytest.mark.parametrize(
    ("body", "is_json"),
    [
        pytest.param(EMPTY * (otlp_request.PROFILES_MAX + 1), False, id="empty resources"),
        pytest.param(field(2, b"\x12\x00" * (otlp_request.FIELDS_MAX + 1)), False, id="empty locations"),
        pytest.param(b'{"x":[' + b",".join([b"{}"] * 60_000) + b"]}", True, id="JSON"),
    ],
)
def test_an_export_of_too_much_is_refused_before_it_is_parsed(body: bytes, is_json: bool) -> None:
    with pytest.raises(Refused) as refused:
        parse_request(body, is_json=is_json)
    assert refused.value.reason == "malformed_request"


@pytest.mark.slow
def test_the_bounds_are_met_and_not_exceeded() -> None:
    check_message(EMPTY * SERIES_MAX, push_pb2.PushRequest.DESCRIPTOR, first_max=SERIES_MAX)
    body = field(1, EMPTY * (FIELDS_MAX - 1))
    check_message(body, push_pb2.PushRequest.DESCRIPTOR, first_max=1)
    with pytest.raises(Refused):
        check_message(body, push_pb2.PushRequest.DESCRIPTOR, first_max=1, fields_max=FIELDS_MAX - 1)
    message_bounds.check_json(b"{" * JSON_OBJECTS_MAX)
    with pytest.raises(Refused):
        message_bounds.check_json(b"{" * (JSON_OBJECTS_MAX + 1))
