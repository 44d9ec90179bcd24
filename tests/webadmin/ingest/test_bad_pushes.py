"""Bad pushes over HTTP: each gets its own refusal, and each is counted by reason for the tenant that sent it."""

# ruff: noqa: E501  (a table of requests)

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError
from django.http import HttpResponse

from tests.webadmin.ingest.conftest import Doors
from tests.webadmin.ingest.pushes import CPU, PUSH, fresh_pprof, push_body, push_of
from webadmin.ingest import distributor
from webadmin.ingest.services.change_push_limit import change_push_limit
from webadmin.ingest.tenant_limits import PushLimitName

ACME = {"X-Scope-OrgID": "acme"}


def error_of(response: HttpResponse) -> tuple[int, str, str]:
    body = json.loads(response.content)
    return response.status_code, body["code"], body["message"]


def refused(doors: Doors, reason: str) -> None:
    """Hold that nothing was stored and that exactly this was counted for the tenant."""
    assert not doors.series()
    assert doors.counts() == {("acme", reason): 1}


def limited(doors: Doors, **values: int) -> None:
    """Set limits of the tenant as an operator does, and let the web process notice."""
    for name, value in values.items():
        change_push_limit(tenant="acme", name=PushLimitName(name), value=value, actor="test", why="a test")
    doors.distributor.refresh()


BODIES: dict[str, tuple[bytes, dict[str, str], int, str, str, str]] = {
    "broken gzip": (b"\x1f\x8b junk", {"Content-Encoding": "gzip"}, 400, "invalid_argument", "bad_gzip", "gzip"),
    "gzip that ends early": (gzip.compress(push_body())[:-9], {"Content-Encoding": "gzip"}, 400, "invalid_argument", "bad_gzip", "ends early"),
    "unknown encoding": (push_body(), {"Content-Encoding": "zstd"}, 501, "unimplemented", "content_encoding", "gzip"),
    "truncated protobuf": (push_body()[:-3], {}, 400, "invalid_argument", "malformed_request", "PushRequest"),
    "no protobuf": (b"\xff" * 40, {}, 400, "invalid_argument", "malformed_request", "PushRequest"),
    "nothing": (b"", {}, 400, "invalid_argument", "no_profiles", "no profiles received"),
    "no pprof inside": (push_of((CPU, [b"hello"])).SerializeToString(), {}, 400, "invalid_argument", "malformed_profile", ""),
    "broken gzip inside": (push_of((CPU, [b"\x1f\x8b\x08junk"])).SerializeToString(), {}, 400, "invalid_argument", "malformed_profile", ""),
    "no labels": (push_of(({}, [fresh_pprof()])).SerializeToString(), {}, 400, "invalid_argument", "missing_labels", "no labels"),
    "no metric": (push_of(({"service_name": "web"}, [fresh_pprof()])).SerializeToString(), {}, 400, "invalid_argument", "invalid_labels", "__name__"),
    "a hostile label name": (push_of(({**CPU, "n" * 1025: "x"}, [fresh_pprof()])).SerializeToString(), {}, 400, "invalid_argument", "label_name_too_long", "1024"),
    "a hostile label value": (push_of(({**CPU, "n": "x" * 2049}, [fresh_pprof()])).SerializeToString(), {}, 400, "invalid_argument", "label_value_too_long", "2048"),
    "too many labels": (push_of(({**CPU, **{f"l{n}": "x" for n in range(30)}}, [fresh_pprof()])).SerializeToString(), {}, 400, "invalid_argument", "max_label_names_per_series", "30"),
    "an old clock": (push_of((CPU, [fresh_pprof(age_s=4_000)])).SerializeToString(), {}, 400, "invalid_argument", "not_in_ingestion_window", "clock"),
    "a fast clock": (push_of((CPU, [fresh_pprof(age_s=-80_000)])).SerializeToString(), {}, 400, "invalid_argument", "not_in_ingestion_window", "future"),
    "another protocol": (push_body(), {"Connect-Protocol-Version": "2"}, 400, "invalid_argument", "protocol_version", "must be 1"),
}  # fmt: skip
"""Bodies are made once, long before their tests may run. Body, headers, then status, code, reason and part of the message of the refusal."""


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_push_gets_its_own_refusal_and_is_counted(doors: Doors, name: str) -> None:
    body, headers, status, code, reason, words = BODIES[name]
    found = error_of(doors.post(PUSH, body, **headers, **ACME))
    assert found[:2] == (status, code)
    assert words in found[2]
    refused(doors, reason)


def test_a_wrong_content_type_is_refused_as_clients_know_it_and_counted(doors: Doors) -> None:
    response = doors.post(PUSH, push_body(), "text/plain", **ACME)
    assert (response.status_code, response.content, response["Accept-Post"]) == (
        415,
        b"",
        "application/json, application/proto",
    )
    refused(doors, "content_type")


@pytest.mark.row("profile-api-28")
def test_pushes_above_the_rate_limit_are_refused_before_validation(doors: Doors) -> None:
    limited(doors, bytes_per_second=1, burst_bytes=len(push_body()) + 50)
    assert doors.post(PUSH, push_body(), **ACME).status_code == 200
    for body in (push_body(), b"\xff" * 200):
        status, code, message = error_of(doors.post(PUSH, body, **ACME))
        assert (status, code) == (429, "resource_exhausted")
        assert "acme" in message
    assert doors.counts()["acme", "rate_limited"] == 2
    assert doors.post(PUSH, push_body(), **{"X-Scope-OrgID": "other"}).status_code == 200


@pytest.mark.row("profile-api-29")
def test_an_empty_push_is_an_invalid_argument_even_without_rate_budget(doors: Doors) -> None:
    limited(doors, bytes_per_second=0, burst_bytes=0)
    assert error_of(doors.post(PUSH, b"", **ACME))[:2] == (400, "invalid_argument")
    assert error_of(doors.post(PUSH, push_body(), **ACME))[:2] == (429, "resource_exhausted")


@pytest.mark.row("profile-api-25")
def test_a_body_over_the_limit_of_the_tenant_is_refused(doors: Doors) -> None:
    limited(doors, body_bytes_max=1 << 20, profile_bytes_max=8 << 20)
    profile = fresh_pprof(*[(f"leaf-{number}-{'x' * 90}", "root") for number in range(8_000)])
    assert 1 << 20 < len(profile) < 2 << 20
    status, code, message = error_of(doors.post(PUSH, push_of((CPU, [profile])).SerializeToString(), **ACME))
    assert (status, code) == (400, "invalid_argument")
    assert "uncompressed batched profile payload size exceeds limit" in message
    bomb = gzip.compress(bytes(16 << 20))
    status, code, _ = error_of(doors.post(PUSH, bomb, **{"Content-Encoding": "gzip"}, **ACME))
    assert (status, code) == (429, "resource_exhausted")
    assert doors.counts() == {("acme", "profile_size_limit"): 1, ("acme", "body_size_limit"): 1}
    assert doors.post("/ingest?name=app&format=pprof", bytes((1 << 20) + 1), "x/y", **ACME).status_code == 413
    assert doors.post("/v1development/profiles", bomb, "application/x-protobuf", **{"Content-Encoding": "gzip"}, **ACME).status_code == 413  # fmt: skip


@pytest.mark.row("profile-api-26")
def test_a_profile_over_its_limit_is_400_by_push_and_422_by_ingest(doors: Doors) -> None:
    limited(doors, profile_bytes_max=100)
    status, _, message = error_of(doors.post(PUSH, push_body(), **ACME))
    assert status == 400
    assert "uncompressed profile payload size exceeds limit of 100" in message
    status, _, message = error_of(doors.post("/ingest?name=app&format=pprof", fresh_pprof(), "x/y", **ACME))
    assert status == 422
    status, _, message = error_of(doors.post("/ingest?name=app", b"a;b 1\n" * 30, "text/plain", **ACME))
    assert (status, "exceeds maximum allowed size" in message) == (422, True)
    assert doors.counts() == {("acme", "profile_size_limit"): 3}


def test_a_gigantic_profile_inside_a_small_request_is_refused(doors: Doors) -> None:
    bomb = push_of((CPU, [gzip.compress(bytes(64 << 20))])).SerializeToString()
    assert error_of(doors.post(PUSH, bomb, **ACME))[:2] == (400, "invalid_argument")
    refused(doors, "profile_size_limit")


def test_profiles_that_are_refused_are_charged_with_what_they_unpack_to(doors: Doors) -> None:
    zeros = gzip.compress(bytes(1 << 20))
    limited(doors, bytes_per_second=1, burst_bytes=1 << 20)
    push = push_of(*[(CPU, [zeros])] * 10).SerializeToString()
    assert error_of(doors.post(PUSH, push, **ACME))[:2] == (400, "invalid_argument")
    assert error_of(doors.post(PUSH, push, **ACME))[:2] == (429, "resource_exhausted")
    ingest, other = "/ingest?name=app&format=pprof", {"X-Scope-OrgID": "other"}
    change_push_limit(tenant="other", name=PushLimitName("burst_bytes"), value=1 << 19, actor="test", why="a test")
    doors.distributor.refresh()
    assert doors.post(ingest, zeros, "x/y", **other).status_code == 422
    assert doors.post(ingest, zeros, "x/y", **other).status_code == 429


def test_series_beyond_the_tenants_limit_are_refused_and_known_ones_accepted(doors: Doors) -> None:
    limited(doors, series_max=2)
    assert doors.post(PUSH, push_body("a", "b"), **ACME).status_code == 200
    status, code, message = error_of(doors.post(PUSH, push_body("c"), **ACME))
    assert (status, code) == (429, "resource_exhausted")
    assert "2 active series" in message
    assert doors.post(PUSH, push_body("a", "b"), **ACME).status_code == 200
    assert doors.counts() == {("acme", "accepted"): 4, ("acme", "series_limit"): 1}


@pytest.mark.parametrize("tenant", ["no/slash", "..", "a" * 151, "größe"])
def test_an_impossible_tenant_is_refused(doors: Doors, tenant: str) -> None:
    status, code, _ = error_of(doors.post(PUSH, push_body(), **{"X-Scope-OrgID": tenant}))
    assert (status, code) == (401, "unauthenticated")
    assert doors.counts() == {("", "bad_tenant"): 1}


def test_a_flood_of_bad_pushes_is_one_row_with_the_last_message(doors: Doors) -> None:
    for _ in range(20):
        doors.post(PUSH, b"\xff", **ACME)
    assert doors.counts() == {("acme", "malformed_request"): 20}
    doors.post(PUSH, b"\xff", **ACME)
    assert doors.counts() == {("acme", "malformed_request"): 21}


def test_counts_wait_while_the_database_is_away(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(sums: Any) -> None:
        raise DatabaseError("gone")

    doors.post(PUSH, b"\xff", **ACME)
    kept: Callable[..., None] = distributor.count_pushes
    monkeypatch.setattr(distributor, "count_pushes", away)
    doors.distributor.flush_counts()
    monkeypatch.setattr(distributor, "count_pushes", kept)
    assert doors.counts() == {("acme", "malformed_request"): 1}
