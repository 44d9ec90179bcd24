"""Access to queries, rejected requests and their errors, and the headers of an answer. Handwritten requests."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError
from django.http import HttpResponse
from google.protobuf.message import Message

from engine.formats.proto import querier_pb2
from engine.query.model import QueryLimits
from tests.webadmin.query.viewers.conftest import CPU, EXAMPLE, Viewer
from webadmin.base.access.scopes import SCOPE_PUSH, SCOPE_QUERY
from webadmin.query.viewers import viewing
from webadmin.query.viewers.querier_api import METHODS

GETS = ("render", "render-diff", "label-values", "labels")


def said(response: HttpResponse) -> tuple[int, str, str]:
    """Return status, Connect's code and our reason of a refusal."""
    assert response["Content-Type"] == "application/json"
    return response.status_code, json.loads(response.content)["code"], response["Lithify-Reason"]


def message_of(response: HttpResponse) -> str:
    return str(json.loads(response.content)["message"])


def every_answer(viewer: Viewer, **headers: str) -> list[HttpResponse]:
    """Ask at every address, with the same headers."""
    posts = [viewer.post(method, b"", **headers) for method in METHODS]
    gets = [viewer.client.get(f"/pyroscope/{path}", headers=headers) for path in GETS]
    return [*posts, *gets]  # type: ignore[list-item]


def test_every_address_needs_a_credential_with_the_scope_and_the_tenant(
    viewer: Viewer, credential: Callable[..., str], settings: Any
) -> None:
    settings.TRUST_TENANT_HEADER = True  # trusts pushes only
    viewer.write(EXAMPLE)
    pusher = credential("quarry", scopes=(SCOPE_PUSH,))
    cases = [
        ({"Authorization": "", "X-Scope-OrgID": "quarry"}, (401, "unauthenticated", "no_credential")),
        ({"Authorization": "Bearer lw_000000000000_" + "A" * 43}, (401, "unauthenticated", "credential_refused")),
        ({"Authorization": f"Bearer {pusher}"}, (403, "permission_denied", "scope_missing")),
        (
            {"Authorization": f"Bearer {viewer.secret}", "X-Scope-OrgID": "river"},
            (403, "permission_denied", "tenant_not_allowed"),
        ),
        (
            {"Authorization": f"Bearer {viewer.secret}", "X-Scope-OrgID": "quarry|river"},
            (403, "permission_denied", "tenant_not_allowed"),
        ),
    ]
    for headers, expected in cases:
        for answer in every_answer(viewer, **headers):
            assert said(answer) == expected
            assert b"main" not in answer.content


def test_a_credential_of_several_tenants_selects_tenants_by_header(
    viewer: Viewer, credential: Callable[..., str]
) -> None:
    viewer.write({"a": 1}, tenant="quarry")
    viewer.write({"a": 2}, tenant="river")
    viewer.write({"a": 4}, tenant="meadow")
    request = viewer.stack_request()
    for secret in (credential("quarry", "river", scopes=(SCOPE_QUERY,)), credential("*", scopes=(SCOPE_QUERY,))):
        bearer = {"Authorization": f"Bearer {secret}"}
        totals = {}
        for header in ("quarry", "river", "river|quarry", "river|river"):
            answer = viewer.ask(
                "SelectMergeStacktraces",
                request,
                querier_pb2.SelectMergeStacktracesResponse,
                **bearer,
                **{"X-Scope-OrgID": header},
            )
            totals[header] = answer.flamegraph.total
        assert totals == {"quarry": 1, "river": 2, "river|quarry": 3, "river|river": 2}
        assert said(viewer.post("ProfileTypes", b"", **bearer)) == (401, "unauthenticated", "no_tenant")
        bad = viewer.post("ProfileTypes", b"", **bearer, **{"X-Scope-OrgID": "../x"})
        assert said(bad)[:2] == (401, "unauthenticated")


def test_the_credential_may_be_the_password_of_http_basic(viewer: Viewer) -> None:
    basic = base64.b64encode(f"anybody:{viewer.secret}".encode()).decode()
    assert viewer.post("ProfileTypes", b"", Authorization=f"Basic {basic}").status_code == 200


def stack(viewer: Viewer, **fields: Any) -> tuple[str, Message]:
    return "SelectMergeStacktraces", viewer.stack_request(**fields)


def select(viewer: Viewer, **fields: Any) -> tuple[str, Message]:
    every = {"profile_typeID": CPU, "label_selector": "{}", "step": 15, **viewer.range(), **fields}
    return "SelectSeries", querier_pb2.SelectSeriesRequest(**every)


REFUSED: list[tuple[Callable[..., tuple[str, Message]], dict[str, Any], str, str]] = [
    (stack, {"start": 0}, "invalid_question", "missing time range"),
    (stack, {"start": 1000, "end": 500}, "invalid_question", "query start time is after end time"),
    (stack, {"start": -(1 << 63), "end": (1 << 63) - 1}, "invalid_question", "exceeds the limit of 31d"),
    (stack, {"profile_typeID": "a:b:c:d"}, "invalid_question", "got(4): a:b:c:d"),
    (stack, {"profile_typeID": "cpu"}, "invalid_question", "got(1): cpu"),
    (stack, {"profile_typeID": "a:b:c:d:e:f:g"}, "invalid_question", "got(7)"),
    (stack, {"label_selector": ""}, "invalid_selector", "{}"),
    (stack, {"label_selector": "{a="}, "invalid_selector", "character 3"),
    (stack, {"label_selector": '{a=~"("}'}, "invalid_selector", "RE2"),
    (stack, {"label_selector": '{a=~"x{1001}{1001}"}'}, "invalid_selector", "RE2"),
    (stack, {"label_selector": '{a=~"' + "a" * 1001 + '"}'}, "invalid_selector", "1000"),
    (stack, {"max_nodes": (1 << 20) + 1}, "invalid_question", "1048576"),
    (stack, {"max_nodes": -1}, "invalid_question", "max nodes"),
    (stack, {"span_selector": ["abc"]}, "invalid_question", "span id"),
    (stack, {"trace_id_selector": ["x" * 32]}, "invalid_question", "trace id"),
    (stack, {"profile_id_selector": ["mine"]}, "invalid_question", "UUID"),
    (stack, {"span_selector": ["0" * 16], "trace_id_selector": ["0" * 32]}, "invalid_question", "not for both"),
    (select, {"step": 0.0005}, "invalid_question", "step must be >= 1ms"),
    (select, {"step": 0}, "invalid_question", "step must be >= 1ms"),
    (select, {"step": math.nan}, "invalid_question", "step must be >= 1ms"),
    (select, {"step": math.inf}, "invalid_question", "step must be >= 1ms"),
    (select, {"limit": -1}, "invalid_question", "limit"),
]


@pytest.mark.parametrize(("build", "fields", "reason", "words"), REFUSED)
def test_invalid_requests_are_rejected_with_what_to_change(
    viewer: Viewer, build: Callable[..., tuple[str, Message]], fields: dict[str, Any], reason: str, words: str
) -> None:
    method, request = build(viewer, **fields)
    answer = viewer.post(method, request.SerializeToString())
    assert said(answer) == (400, "invalid_argument", reason)
    assert words in message_of(answer)


def test_unsupported_requests_are_unimplemented(viewer: Viewer) -> None:
    expected = (501, "unimplemented", "not_offered")
    _, request = select(viewer, exemplar_type=querier_pb2.EXEMPLAR_TYPE_SPAN)
    assert said(viewer.post("SelectSeries", request.SerializeToString())) == expected
    pgo = querier_pb2.StackTraceSelector(go_pgo={"keep_locations": 5})
    request = viewer.stack_request(stack_trace_selector=pgo)
    assert said(viewer.post("SelectMergeStacktraces", request.SerializeToString())) == expected
    assert said(viewer.post("SelectHeatmap", b"")) == (501, "unimplemented", "unimplemented")


def test_a_difference_needs_both_sides_and_values_a_name(viewer: Viewer) -> None:
    one_sided = querier_pb2.DiffRequest(left=viewer.stack_request())
    assert said(viewer.post("Diff", one_sided.SerializeToString())) == (400, "invalid_argument", "invalid_question")
    nameless = querier_pb2.LabelValuesRequest(**viewer.range())
    answer = viewer.post("LabelValues", nameless.SerializeToString())
    assert (said(answer)[0], message_of(answer)) == (400, "name is required")


@pytest.mark.parametrize("body", [b"[]", b"null", b'"text"', b"{", b'{"start": "soon"}', b'{"start": 1e400}', b"\xff"])
def test_bodies_that_are_no_message(viewer: Viewer, body: bytes) -> None:
    assert said(viewer.post("ProfileTypes", body, "application/json")) == (400, "invalid_argument", "malformed_request")
    assert said(viewer.post("ProfileTypes", b"\xff\xff")) == (400, "invalid_argument", "malformed_request")


def test_bodies_are_bounded_and_may_be_gzipped(viewer: Viewer) -> None:
    zipped = {"Content-Encoding": "gzip"}
    assert viewer.post("ProfileTypes", gzip.compress(b""), **zipped).status_code == 200
    bomb = gzip.compress(bytes(2 << 20))
    assert said(viewer.post("ProfileTypes", bomb, **zipped)) == (429, "resource_exhausted", "body_size_limit")


def test_addresses_take_one_method_and_stand_under_any_prefix(viewer: Viewer) -> None:
    headers = {"Authorization": f"Bearer {viewer.secret}"}
    wrong = viewer.client.get("/querier.v1.QuerierService/Series", headers=headers)
    assert (wrong.status_code, wrong["Allow"]) == (405, "POST")
    for path in GETS:
        wrong = viewer.client.post(f"/pyroscope/{path}", headers=headers)
        assert (wrong.status_code, wrong["Allow"]) == (405, "GET")
    kind = "application/proto"
    prefixed = viewer.client.post(
        "/a//querier.v1.QuerierService/ProfileTypes", data=b"", content_type=kind, CONTENT_TYPE=kind, headers=headers
    )
    assert prefixed.status_code == 200


@pytest.mark.row("profile-api-35")
def test_ranges_are_limited_by_length_and_lookback(viewer: Viewer, settings: Any, monkeypatch: Any) -> None:
    settings.QUERY_LENGTH_SECONDS, settings.QUERY_LOOKBACK_SECONDS = 48 * 3600, 72 * 3600
    viewer.write({"a": 1})
    hour = 3_600_000

    def total(hours_ago: float, start: float, end: float) -> int:
        now_ms = viewer.start_ms + int(hours_ago * hour)
        monkeypatch.setattr(viewing.time, "time_ns", lambda: now_ms * 10**6)
        asked = {"start": now_ms + int(start * hour), "end": now_ms + int(end * hour)}
        return int(viewer.stacks(**asked).flamegraph.total)

    assert total(23, -24, 0) == 1
    assert total(74, -75, -73) == 0, "all of it is too far back"
    assert total(71, -75, -68) == 1
    assert total(73, -75, -68) == 0, "the start was moved up"
    monkeypatch.setattr(viewing.time, "time_ns", lambda: viewer.start_ms * 10**6)
    request = viewer.stack_request(start=viewer.start_ms - 150 * hour, end=viewer.start_ms + hour)
    answer = viewer.post("SelectMergeStacktraces", request.SerializeToString())
    assert said(answer)[0] == 400
    assert "73h0m0s" in message_of(answer)
    assert "2d" in message_of(answer)


def test_an_answer_has_headers_with_its_cost(viewer: Viewer) -> None:
    keys = [viewer.write(EXAMPLE, at=place) for place in range(3)]
    request = viewer.stack_request().SerializeToString()
    answer = viewer.post("SelectMergeStacktraces", request)
    assert answer["Lithify-Objects-Opened"] == str(len(keys))
    assert int(answer["Lithify-Bytes-Read"]) > 0
    assert float(answer["Lithify-Milliseconds"]) > 0
    assert "index;dur=" in answer["Server-Timing"]
    assert "Lithify-Partial" not in answer


def test_a_damaged_block_leaves_an_answer_marked_partial(viewer: Viewer) -> None:
    viewer.write({"a": 1}, at=0)
    broken = viewer.write({"a": 2}, at=1)
    whole = bytes(viewer.stored.store.get(broken))
    viewer.stored.store.put(broken, bytes(len(whole)))
    request = viewer.stack_request().SerializeToString()
    for answer in (viewer.post("SelectMergeStacktraces", request), render(viewer)):
        assert answer.status_code == 200
        assert broken in answer["Lithify-Partial"]
    found = querier_pb2.SelectMergeStacktracesResponse.FromString(
        viewer.post("SelectMergeStacktraces", request).content
    )
    assert found.flamegraph.total == 1


def render(viewer: Viewer) -> HttpResponse:
    times = {"from": viewer.start_ms, "until": viewer.start_ms + 60_000}
    return viewer.get("render", query=CPU + "{}", **times)


@pytest.mark.parametrize(
    ("limits", "method", "words"),
    [
        (QueryLimits(series=2), "Series", "2 series"),
        (QueryLimits(series=2), "SelectSeries", "2 series"),
        (QueryLimits(rows=2), "SelectMergeStacktraces", "2 rows"),
        (QueryLimits(bytes=10), "SelectMergeStacktraces", "10 bytes"),
        (QueryLimits(objects=2), "SelectMergeStacktraces", "2 datasets"),
        (QueryLimits(memory=1), "SelectSeries", "1 datasets"),
    ],
)
def test_an_answer_that_would_take_too_much_is_refused(
    viewer: Viewer, monkeypatch: Any, limits: QueryLimits, method: str, words: str
) -> None:
    for place in range(3):
        viewer.write(EXAMPLE, at=place, host=str(place))
    monkeypatch.setattr(viewing, "query_limits", lambda: limits)
    asked = {
        "Series": querier_pb2.SeriesRequest(matchers=["{}"], **viewer.range()),
        "SelectSeries": select(viewer, group_by=["host"])[1],
        "SelectMergeStacktraces": viewer.stack_request(),
    }
    answer = viewer.post(method, asked[method].SerializeToString())
    assert said(answer) == (429, "resource_exhausted", "query_too_large")
    assert words in message_of(answer)
    _, many = select(viewer, step=0.001, start=1, end=86_400_000)
    answer = viewer.post("SelectSeries", many.SerializeToString())
    assert said(answer) == (429, "resource_exhausted", "query_too_large")
    assert "points per series" in message_of(answer)


def test_what_is_away_is_unavailable_and_too_slow_is_too_late(viewer: Viewer, settings: Any, monkeypatch: Any) -> None:
    viewer.write(EXAMPLE)
    request = viewer.stack_request().SerializeToString()
    late = viewer.post("SelectMergeStacktraces", request, **{"Connect-Timeout-Ms": "0"})
    assert said(late)[:2] == (504, "deadline_exceeded")

    def away(*arguments: object, **options: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(viewing, "query_stacks", away)
    assert said(viewer.post("SelectMergeStacktraces", request)) == (503, "unavailable", "store_away")
    assert said(render(viewer)) == (503, "unavailable", "store_away")


def test_viewers_behind_a_proxy_without_the_https_header_are_not_redirected(viewer: Viewer, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    viewer.write(EXAMPLE)
    assert viewer.stacks().flamegraph.total == 100
    assert render(viewer).status_code == 200
    assert viewer.client.get("/admin/").status_code == 301, "people are redirected"
