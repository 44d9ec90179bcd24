"""Absurd queries: each ends in an error or in an answer, and never costs much. Handwritten requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engine.formats.proto import querier_pb2
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, Viewer
from tests.webadmin.query.viewers.test_refusals import message_of, said
from webadmin.base.access.scopes import SCOPE_QUERY

REFUSED = (400, "invalid_argument", "invalid_question")


def select(viewer: Viewer, **fields: Any) -> Any:
    every = {"profile_typeID": CPU, "label_selector": "{}", "step": 15, **viewer.range(), **fields}
    return viewer.post("SelectSeries", querier_pb2.SelectSeriesRequest(**every).SerializeToString())


def test_groups_by_countless_labels(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    answer = select(viewer, group_by=[f"label-{n}" for n in range(50_000)])
    assert said(answer) == REFUSED
    assert message_of(answer) == "groups by 50000 labels; 100 are allowed"
    assert select(viewer, group_by=["host"] * 50_000).status_code == 200, "one label, however often it is named"


def test_countless_selectors_and_matchers(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    request = querier_pb2.LabelNamesRequest(matchers=['{a!="b"}'] * 60_000, **viewer.range())
    answer = viewer.post("LabelNames", request.SerializeToString())
    assert said(answer) == (400, "invalid_argument", "invalid_selector")
    assert "more than 100 matchers" in message_of(answer)
    answer = select(viewer, label_selector="{" + ",".join(['a!="b"'] * 51) + "}")
    assert said(answer) == (400, "invalid_argument", "invalid_selector")


@pytest.mark.parametrize("step", [1e15, 1e30, 1e300])
def test_a_step_longer_than_all_time(viewer: Viewer, step: float) -> None:
    viewer.write(EXAMPLE)
    answer = select(viewer, step=step)
    assert said(answer) == REFUSED
    assert "step must be <=" in message_of(answer)


def test_a_step_much_longer_than_the_range_is_one_point(viewer: Viewer) -> None:
    viewer.write(EXAMPLE, at=30_000)
    end = viewer.start_ms + 30_000
    answer = select(viewer, step=1e9, start=end, end=end)
    (series,) = querier_pb2.SelectSeriesResponse.FromString(answer.content).series
    assert [(point.timestamp, point.value) for point in series.points] == [(end, 100)]


def test_ranges_at_the_ends_of_time(viewer: Viewer, settings: Any) -> None:
    settings.QUERY_LENGTH_SECONDS = 0
    viewer.write(EXAMPLE)
    least, most = -(1 << 63), (1 << 63) - 1
    for start, end, total in ((least, most, 100), (least, -1, 0), (most, most, 0), (-5, 5, 0), (least, least, 0)):
        assert viewer.stacks(start=start, end=end).flamegraph.total == total
    assert said(viewer.get("render", query=CPU + "{}", **{"from": "19700101", "until": "now"})) == REFUSED
    answer = viewer.get("render", query=CPU + "{}", **{"from": "1", "until": "9" * 30})
    assert (answer.status_code, answer.json()["flamebearer"]["numTicks"]) == (200, 100)


def test_patterns_that_ruin_other_engines_are_answered(viewer: Viewer) -> None:
    hosts = [f"{'a' * 1500}{n}" for n in range(3)]
    for at, host in enumerate(hosts):
        viewer.write({"a": 1}, at=at, host=host)
    totals = {
        "(a+)+b": 0,
        "(a|aa)*c": 0,
        "(.*)(.*)(.*)(.*)(.*)x": 0,
        "(.*a.{20}){3}": 3,
        "(a?){1000}a{500}[0-9]": 3,
        "": 0,
    }
    found = {text: viewer.stacks(label_selector=f'{{host=~"{text}"}}').flamegraph.total for text in totals}
    assert found == totals, "an engine that tries every way would not end in this life"
    for text in ("((a{0,30}){30}){30}", "(?P<", "a**", "(?=a)", r"\\1", "[z-a]"):
        answer = viewer.post(
            "SelectMergeStacktraces", viewer.stack_request(label_selector=f'{{host=~"{text}"}}').SerializeToString()
        )
        assert said(answer) == (400, "invalid_argument", "invalid_selector")
        assert "has an invalid RE2 pattern" in message_of(answer)


def test_an_unknown_tenant_has_no_data(viewer: Viewer, credential: Callable[..., str]) -> None:
    viewer.write(EXAMPLE)
    anybody = {"Authorization": f"Bearer {credential('*', scopes=(SCOPE_QUERY,))}", "X-Scope-OrgID": "nobody"}
    body = viewer.stack_request().SerializeToString()
    answer = viewer.post("SelectMergeStacktraces", body, **anybody)
    assert answer.status_code == 200
    assert querier_pb2.SelectMergeStacktracesResponse.FromString(answer.content).flamegraph.total == 0
    listed = viewer.post("LabelNames", querier_pb2.LabelNamesRequest(**viewer.range()).SerializeToString(), **anybody)
    assert (listed.status_code, listed.content) == (200, b"")


@pytest.mark.parametrize(
    "body",
    [
        b'{"start":' + b"[" * 100_000,
        b'{"a":' * 100_000,
        json.dumps({"profileTypeID": CPU, "labelSelector": "{}", "start": "1" * 100_000}).encode(),
        json.dumps({"maxNodes": 1 << 70}).encode(),
        json.dumps({"maxNodes": 1e308}).encode(),
        json.dumps({"stackTraceSelector": {"callSite": "main"}}).encode(),
        b'{"labelSelector": "\\ud800"}',
        "{}".encode("utf-16"),
    ],
)
def test_json_that_no_client_sends(viewer: Viewer, body: bytes) -> None:
    answer = viewer.post("SelectMergeStacktraces", body, "application/json")
    assert said(answer)[:2] == (400, "invalid_argument")


def test_messages_that_claim_more_than_they_have(viewer: Viewer) -> None:
    nested = b""
    for _ in range(200):  # a message in a message in a message
        nested = b"\x3a" + _length(len(nested)) + nested
    for body in (
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x0a" + b"\xff" * 11,
        b"\x08" * 1000,
        nested,
        b"\x12\x04\xff\xfe\xfd\xfc",
    ):
        answer = viewer.post("SelectMergeStacktraces", body)
        assert answer.status_code in (400, 200)
        if answer.status_code == 400:
            assert said(answer)[1] == "invalid_argument"


def _length(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def test_a_call_site_longer_than_any_stack(viewer: Viewer) -> None:
    viewer.write(EXAMPLE)
    selector = querier_pb2.StackTraceSelector(call_site=[{"name": "main"}] * 50_000)
    request = viewer.stack_request(stack_trace_selector=selector).SerializeToString()
    answer = viewer.post("SelectMergeStacktraces", request)
    assert querier_pb2.SelectMergeStacktracesResponse.FromString(answer.content).flamegraph.total == 0
