"""The transport of unary Connect calls, row by row of the format sheet's section 1."""

from __future__ import annotations

import gzip
import json
import time
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import RequestFactory

from engine.formats.proto.push_pb2 import PushRequest
from webadmin.base.connect import STATUSES, Call, ConnectError, Gate, unary

PATH = "/push.v1.PusherService/Push"


def echo(call: Call) -> PushRequest:
    """Answer with what was sent."""
    if call.is_json:
        request = PushRequest()
        for name in json.loads(call.body).get("names", []):
            request.series.add().labels.add(name=name)
        return request
    return PushRequest.FromString(call.body)


def posted(body: bytes, kind: str = "application/proto", handler: Any = echo, **headers: str) -> HttpResponse:
    return unary(handler, Gate(body_bytes_max=lambda sender: 1 << 20))(
        RequestFactory().post(PATH, data=body, content_type=kind, headers=headers, CONTENT_TYPE=kind)
    )


def push(*names: str) -> bytes:
    request = PushRequest()
    for name in names:
        request.series.add().labels.add(name=name)
    return request.SerializeToString()


def error_of(response: HttpResponse) -> tuple[int, str]:
    assert response["Content-Type"] == "application/json"
    return response.status_code, json.loads(response.content)["code"]


def test_an_answer_has_the_type_of_the_request() -> None:
    response = posted(push("a"))
    assert (response.status_code, response["Content-Type"], response.content) == (200, "application/proto", push("a"))
    response = posted(b'{"names": ["a"]}', "application/json; charset=utf-8")
    assert json.loads(response.content) == {"series": [{"labels": [{"name": "a"}]}]}


def test_an_empty_message_is_an_empty_body_and_an_empty_object() -> None:
    assert posted(b"").content == b""
    assert posted(b"{}", "application/json").content == b"{}"


@pytest.mark.row("profile-api-59")
def test_other_content_types_methods_and_empty_json_are_refused_with_connect_statuses() -> None:
    response = posted(b"x", "text/plain")
    assert (response.status_code, response.content) == (415, b"")
    assert response["Accept-Post"] == "application/json, application/proto"
    response = unary(echo)(RequestFactory().get(PATH))
    assert (response.status_code, response["Allow"]) == (405, "POST")
    assert error_of(posted(b"", "application/json")) == (400, "invalid_argument")


def test_a_request_may_be_gzipped_and_an_answer_is_if_the_client_takes_it() -> None:
    long = push("a" * 5000)
    zipped = {"Content-Encoding": "gzip"}
    assert posted(gzip.compress(long), **zipped).content == long
    response = posted(gzip.compress(long), **zipped, **{"Accept-Encoding": "gzip"})
    assert response["Content-Encoding"] == "gzip"
    assert gzip.decompress(response.content) == long


def test_gzip_in_several_members_is_one_body() -> None:
    body = gzip.compress(push("a")) + gzip.compress(push("b"))
    assert posted(body, **{"Content-Encoding": "gzip"}).content == push("a", "b")


@pytest.mark.parametrize("body", [b"junk", gzip.compress(push("a"))[:-3], b""], ids=["junk", "cut", "empty"])
def test_broken_gzip_is_refused(body: bytes) -> None:
    assert error_of(posted(body, **{"Content-Encoding": "gzip"})) == (400, "invalid_argument")


def test_a_gzip_bomb_and_a_large_body_are_refused() -> None:
    assert error_of(posted(gzip.compress(bytes(64 << 20)), **{"Content-Encoding": "gzip"})) == (
        429,
        "resource_exhausted",
    )
    assert error_of(posted(bytes(2 << 20))) == (429, "resource_exhausted")


def test_other_compressions_are_unimplemented_and_the_error_lists_those_supported() -> None:
    response = posted(b"x", **{"Content-Encoding": "zstd"})
    assert error_of(response) == (501, "unimplemented")
    assert b"gzip" in response.content


@pytest.mark.parametrize("headers", [{"Connect-Protocol-Version": "2"}, {"Connect-Timeout-Ms": "soon"}, {"Connect-Timeout-Ms": "-1"}, {"Connect-Timeout-Ms": "1" * 11}])  # fmt: skip  # noqa: E501
def test_a_wrong_protocol_header_is_refused(headers: dict[str, str]) -> None:
    assert error_of(posted(push("a"), **headers)) == (400, "invalid_argument")


def test_no_connect_header_is_needed() -> None:
    assert posted(push("a")).status_code == 200
    assert posted(push("a"), **{"Connect-Protocol-Version": "1", "Connect-Timeout-Ms": "10000"}).status_code == 200


def test_an_answer_after_the_deadline_is_an_error() -> None:
    def late(call: Call) -> PushRequest:
        deadline = call.deadline
        assert deadline is not None
        while time.monotonic() <= deadline:
            pass
        assert call.seconds_left(5.0) == 0.0
        return PushRequest()

    assert error_of(posted(push("a"), handler=late, **{"Connect-Timeout-Ms": "1"})) == (504, "deadline_exceeded")


@pytest.mark.parametrize("code", STATUSES)
def test_every_code_has_its_status(code: str) -> None:
    def refuse(call: Call) -> PushRequest:
        raise ConnectError(code, "größer \ud800")

    response = posted(push("a"), handler=refuse)
    assert error_of(response) == (STATUSES[code], code)


def test_an_internal_error_is_reported_without_details(caplog: pytest.LogCaptureFixture) -> None:
    def fail(call: Call) -> PushRequest:
        raise RuntimeError("a secret")

    response = posted(push("a"), handler=fail)
    assert error_of(response) == (500, "internal")
    assert b"secret" not in response.content
    assert "call_failed" in caplog.text
