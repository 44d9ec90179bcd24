"""Connect pushes over HTTP: what profilers send, whose it is, and where it goes."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError
from google.protobuf import json_format

from engine.formats.proto import push_pb2
from engine.ingest.model import NANOSECONDS_PER_SECOND
from tests.webadmin.ingest.conftest import Doors
from tests.webadmin.ingest.pushes import CPU, PUSH, fresh_pprof, push_body, push_of
from tests.webadmin.ingest.writer_double import ring_of
from webadmin.base import senders
from webadmin.base.access.credential_changes import revoke_credential
from webadmin.base.access.models import WorkerCredential
from webadmin.ingest.tenant_limits import limits_of

RECORDED = ("auth-and-tenant", "memory-and-cpu", "odd-labels", "server-url-with-prefix", "thread-tags")
YEARS_S = 30 * 365 * 86_400


def test_a_push_reaches_the_writer_of_its_shard_and_is_acknowledged(doors: Doors) -> None:
    response = doors.post(PUSH, push_body("web"))
    assert (response.status_code, response.content) == (200, b"")
    (push,) = doors.writers[0].pushes
    assert (push.tenant, push.series[0].labels) == ("anonymous", tuple(sorted(CPU.items())))
    assert 1 <= push.shard <= 64
    assert doors.counts() == {("anonymous", "accepted"): 1}


def test_json_gzip_and_repeated_slashes_are_taken(doors: Doors) -> None:
    text = json_format.MessageToJson(push_of((CPU, [gzip.compress(fresh_pprof())]))).encode()
    response = doors.post(PUSH, text, "application/json")
    assert (response.status_code, response.content) == (200, b"{}")
    zipped = {"Content-Encoding": "gzip"}
    assert doors.post(f"/a/{PUSH}", gzip.compress(push_body()), **zipped).status_code == 200
    assert doors.post(f"/profiles/{PUSH}", gzip.compress(push_body()), **zipped).status_code == 200
    assert len(doors.series()) == 3


@pytest.mark.foreign_data
@pytest.mark.parametrize("name", RECORDED)
def test_what_the_sdk_really_sent_is_taken_byte_for_byte(
    doors: Doors, credential: Callable[..., str], foreign_data: Path, name: str
) -> None:
    folder = foreign_data / "push"
    lines = (folder / f"{name}.headers.txt").read_text().splitlines()
    path = lines[0].split()[1]
    headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
    if "authorization" in headers:  # the password of the recording is nobody's credential here
        basic = base64.b64encode(f"user1:{credential('team-a')}".encode()).decode()
        headers["authorization"] = f"Basic {basic}"
    for header in ("content-length", "host"):
        headers.pop(header, None)
    kind = headers.pop("content-type")
    doors.distributor._limits[""] = limits_of({}, {"older_than_now_seconds": YEARS_S})
    body = (folder / f"{name}.bin").read_bytes()
    response = doors.post(path, body, kind, **headers)
    assert (response.status_code, response.content) == (200, b"")
    expected = json.loads((folder / "expected.json").read_text())[name]
    wanted = sorted(sorted(map(tuple, series["labels"])) for series in expected["series"])
    assert sorted(list(series.labels) for series in doors.series()) == wanted
    raw = [s.raw_profile for one in push_pb2.PushRequest.FromString(gzip.decompress(body)).series for s in one.samples]
    assert sorted(series.pprof for series in doors.series()) == sorted(raw)
    tenant = "team-a" if name == "auth-and-tenant" else "anonymous"
    assert {push.tenant for push in doors.writers[0].pushes} == {tenant}


def test_a_credential_is_taken_as_bearer_and_as_basic_password(
    doors: Doors, credential: Callable[..., str], settings: Any
) -> None:
    settings.TRUST_TENANT_HEADER = False
    secret = credential("acme")
    basic = base64.b64encode(f"anybody:{secret}".encode()).decode()
    for authorization in (f"Bearer {secret}", f"Basic {basic}", f"basic {basic}"):
        assert doors.post(PUSH, push_body(), Authorization=authorization).status_code == 200
    assert {push.tenant for push in doors.writers[0].pushes} == {"acme"}


def test_the_tenant_header_chooses_among_the_tenants_of_the_credential(
    doors: Doors, credential: Callable[..., str]
) -> None:
    secret = f"Bearer {credential('acme', 'beta')}"
    assert doors.post(PUSH, push_body(), Authorization=secret, **{"X-Scope-OrgID": "beta"}).status_code == 200
    response = doors.post(PUSH, push_body(), Authorization=secret, **{"X-Scope-OrgID": "gamma"})
    assert (response.status_code, response.json()["code"]) == (403, "permission_denied")
    response = doors.post(PUSH, push_body(), Authorization=secret)
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert "no org id" in response.json()["message"]
    response = doors.post(PUSH, push_body(), Authorization=secret, **{"X-Scope-OrgID": "acme|beta"})
    assert response.status_code == 401
    anyone = f"Bearer {credential('*')}"
    assert doors.post(PUSH, push_body(), Authorization=anyone, **{"X-Scope-OrgID": "gamma"}).status_code == 200
    assert [push.tenant for push in doors.writers[0].pushes] == ["beta", "gamma"]
    assert doors.counts()["", "tenant_not_allowed"] == 1


@pytest.mark.parametrize("authorization", ["Bearer nonsense", "Basic !!!", "Basic dXNlcjpwYXNz", "Digest x", "Bearer"])
def test_a_bad_credential_is_refused_even_where_headers_are_trusted(doors: Doors, authorization: str) -> None:
    response = doors.post(PUSH, push_body(), Authorization=authorization)
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert doors.counts() == {("", "credential_refused"): 1}
    assert not doors.series()


def test_a_bare_header_is_refused_where_it_is_not_trusted(doors: Doors, settings: Any) -> None:
    settings.TRUST_TENANT_HEADER = False
    response = doors.post(PUSH, push_body(), **{"X-Scope-OrgID": "acme"})
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert doors.counts() == {("", "no_credential"): 1}


def test_a_credential_without_the_scope_may_not_push(doors: Doors, credential: Callable[..., str]) -> None:
    secret = credential("acme", scopes=("jobs:poll",))
    response = doors.post(PUSH, push_body(), Authorization=f"Bearer {secret}")
    assert (response.status_code, response.json()["code"]) == (403, "permission_denied")
    assert doors.counts() == {("", "scope_missing"): 1}


@pytest.mark.parametrize("failure", [DatabaseError, InterfaceError])
def test_a_known_credential_pushes_on_while_the_database_is_away(
    doors: Doors, credential: Callable[..., str], monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    secret = f"Bearer {credential('acme')}"
    assert doors.post(PUSH, push_body(), Authorization=secret).status_code == 200

    def away(**_: object) -> None:
        raise failure("connection refused")

    monkeypatch.setattr(senders, "prove_credential", away)
    monkeypatch.setattr(senders, "FRESH_S", 0.0)
    assert doors.post(PUSH, push_body(), Authorization=secret).status_code == 200
    response = doors.post(PUSH, push_body(), Authorization="Bearer another")
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")


def test_a_revoked_credential_is_refused_once_it_is_checked_again(
    doors: Doors, credential: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"Bearer {credential('acme')}"
    assert doors.post(PUSH, push_body(), Authorization=secret).status_code == 200
    revoke_credential(name=WorkerCredential.objects.get().name, actor="test")
    monkeypatch.setattr(senders, "FRESH_S", 0.0)
    assert doors.post(PUSH, push_body(), Authorization=secret).status_code == 401


def test_good_series_are_stored_though_others_are_refused(doors: Doors) -> None:
    old = fresh_pprof(age_s=7_200)
    request = push_of((CPU, [fresh_pprof()]), ({**CPU, "service_name": "old"}, [old]), ({}, [fresh_pprof()]))
    response = doors.post(PUSH, request.SerializeToString())
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert "clock" in response.json()["message"]
    assert "no labels" in response.json()["message"]
    assert [dict(series.labels)["service_name"] for series in doors.series()] == ["web"]
    assert doors.counts() == {
        ("anonymous", "accepted"): 1,
        ("anonymous", "not_in_ingestion_window"): 1,
        ("anonymous", "missing_labels"): 1,
    }


def test_services_of_one_push_go_to_their_own_shards(make_doors: Callable[[int], Doors]) -> None:
    doors = make_doors(3)
    services = [f"service-{number}" for number in range(12)]
    assert doors.post(PUSH, push_body(*services)).status_code == 200
    shards = {
        dict(series.labels)["service_name"]: push.shard
        for writer in doors.writers
        for push in writer.pushes
        for series in push.series
    }
    assert sorted(shards) == sorted(services)
    assert len(set(shards.values())) > 1
    placer, _ = doors.distributor.placement.snapshot()
    assert all(placer.decide("anonymous", name, 0).shard == shard for name, shard in shards.items())


def test_another_instance_takes_over_and_the_shard_stays(make_doors: Callable[[int], Doors]) -> None:
    doors = make_doors(3)
    assert doors.post(PUSH, push_body()).status_code == 200
    first = next(writer for writer in doors.writers if writer.pushes)
    shard = first.pushes[0].shard
    first.answer = lambda push: (503, "draining", "this instance is shutting down")
    assert doors.post(PUSH, push_body()).status_code == 200
    others = [push for writer in doors.writers if writer is not first for push in writer.pushes]
    assert [push.shard for push in others] == [shard]


def test_a_dead_instance_is_passed_over_until_it_is_back(make_doors: Callable[[int], Doors]) -> None:
    doors = make_doors(2)
    assert doors.post(PUSH, push_body()).status_code == 200
    first = next(writer for writer in doors.writers if writer.pushes)
    first.stop()
    for _ in range(5):
        assert doors.post(PUSH, push_body()).status_code == 200
    assert not doors.distributor.writers.may_try(first.name), "its breaker is open"
    doors.writers.remove(first)
    assert len(doors.series()) == 5


def test_a_refusal_by_a_writer_is_final_and_no_other_is_tried(make_doors: Callable[[int], Doors]) -> None:
    doors = make_doors(2)
    for writer in doors.writers:
        writer.answer = lambda push: (400, "bad_profile", "profile 0 of 1: nothing in it")
    response = doors.post(PUSH, push_body())
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
    assert "nothing in it" in response.json()["message"]
    assert sum(len(writer.pushes) for writer in doors.writers) == 1
    assert doors.counts() == {("anonymous", "writer_refused"): 1}


def test_a_failed_writer_is_reported_as_unavailable_and_not_tried_elsewhere(make_doors: Callable[[int], Doors]) -> None:
    doors = make_doors(2)
    for writer in doors.writers:
        writer.answer = lambda push: (500, "internal", "the segment could not be made")
    response = doors.post(PUSH, push_body())
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert sum(len(writer.pushes) for writer in doors.writers) == 1


def test_without_any_instance_pushes_are_unavailable(doors: Doors) -> None:
    doors.distributor.placement.offer_ring(ring_of())
    response = doors.post(PUSH, push_body())
    assert (response.status_code, response.json()["code"]) == (503, "unavailable")
    assert doors.counts() == {("anonymous", "empty_ring"): 1}


def test_connections_to_writers_are_kept(doors: Doors) -> None:
    for _ in range(5):
        assert doors.post(PUSH, push_body()).status_code == 200
    assert doors.writers[0].connections == 1


def test_a_deadline_of_the_client_bounds_the_wait(doors: Doors) -> None:
    seen: list[float] = []
    begin = doors.distributor.writers.begin
    doors.distributor.writers.begin = lambda *given: seen.append(given[3]) or begin(*given)  # type: ignore[method-assign]
    assert doors.post(PUSH, push_body(), **{"Connect-Timeout-Ms": "1500"}).status_code == 200
    assert 0 < seen[0] <= 1.5
    response = doors.post(PUSH, push_body(), **{"Connect-Timeout-Ms": "0"})
    assert response.json()["code"] in {"deadline_exceeded", "unavailable"}
    assert NANOSECONDS_PER_SECOND == 10**9
