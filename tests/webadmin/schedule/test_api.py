"""The poll over HTTP: who may call it, what it answers, and the form of every error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from engine.protocol.wire import CAPACITY_MAX, response_from_wire
from tests.webadmin.probes import probe
from tests.webadmin.service import Service
from webadmin.base import request_bounds
from webadmin.base.access.credential_changes import revoke_credential
from webadmin.base.access.models import AuditEntry, WorkerCredential
from webadmin.base.access.services import issue_worker_credential

ADDRESS = "/api/v1/jobs/poll"
REQUEST = {"worker": "node-1", "build": "test", "capacity": 1, "updates": []}


@pytest.fixture
def bearer(service: Service) -> str:
    return issue_worker_credential(name="nodes", actor="test").wire_form


def post(bearer: str | None, body: Any = REQUEST, *, content_type: str = "application/json") -> Any:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    data = body if isinstance(body, bytes | str) else json.dumps(body)
    return Client().post(ADDRESS, data=data, content_type=content_type, headers=headers)


def test_a_worker_gets_its_job_over_http(service: Service, bearer: str) -> None:
    ids = service.add_segments(20)
    answer = post(bearer)
    assert answer.status_code == 200
    [assignment] = response_from_wire(answer.json()).assignments
    assert [source["id"] for source in assignment.spec["sources"]] == ids
    assert assignment.expires_in == 15.0


@pytest.mark.parametrize("credential", [None, "", "lw_", "lw_000000000000_" + "A" * 43, "lw_x_y_z", "é"])
def test_without_a_known_credential_there_is_no_answer(service: Service, credential: str | None) -> None:
    answer = post(credential and credential.encode().decode("latin-1"))
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert set(answer.json()) == {"code", "message"}


def test_a_wrong_secret_is_refused_like_an_unknown_credential(bearer: str) -> None:
    wrong = post(bearer[:-1] + ("A" if bearer[-1] != "A" else "B"))
    unknown = post("lw_000000000000_" + "A" * 43)
    assert (wrong.status_code, wrong.json()) == (unknown.status_code, unknown.json())


def test_a_revoked_credential_is_refused(service: Service, bearer: str) -> None:
    revoke_credential(name="nodes", actor="test")
    assert post(bearer).status_code == 401
    assert sorted(AuditEntry.objects.values_list("action", flat=True)) == [
        "issue_worker_credential",
        "revoke_worker_credential",
    ]


def test_a_credential_for_something_else_may_not_poll(bearer: str) -> None:
    WorkerCredential.objects.update(scopes=["something:else"])
    answer = post(bearer)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "parse_error"),
        (b"", 400, "invalid_message"),
        (b'{"capacity": NaN}', 400, "parse_error"),
        (b"[" * 100_000, 400, "parse_error"),
        (b"\xff\xfe", 400, "parse_error"),
        ([], 400, "invalid_message"),
        (REQUEST | {"capacity": CAPACITY_MAX + 1}, 400, "invalid_message"),
        (REQUEST | {"worker": "a\0b"}, 400, "invalid_message"),
    ],
)
def test_a_bad_body_is_refused_with_a_stable_code(bearer: str, body: Any, status: int, code: str) -> None:
    answer = post(bearer, body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_only_json_and_only_post(bearer: str) -> None:
    assert post(bearer, "a=1", content_type="application/x-www-form-urlencoded").status_code == 415
    answer = Client().get(ADDRESS, headers={"Authorization": f"Bearer {bearer}"})
    assert (answer.status_code, answer.json()["code"]) == (405, "method_not_allowed")


def test_a_body_beyond_the_bound_is_not_read(bearer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_bounds, "BODY_BYTES_MAX", 200)
    answer = post(bearer, b" " * 201)
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")


def test_a_name_that_belongs_to_another_credential_is_a_conflict(bearer: str) -> None:
    assert post(bearer).status_code == 200
    other = issue_worker_credential(name="others", actor="test").wire_form
    assert (post(other).status_code, post(other).json()["code"]) == (409, "name_taken")


def test_the_openapi_page_describes_the_poll(db: None) -> None:
    schema = probe("/api/schema/?format=json").json()
    operation = schema["paths"][ADDRESS]["post"]
    assert operation["operationId"] == "poll_jobs"
    assert set(operation["responses"]) == {"200", "400", "401", "403", "409", "413", "415", "503"}
    assert schema["components"]["securitySchemes"]["worker"]["scheme"] == "bearer"
    assert probe("/api/docs/").status_code == 200


def test_healthz_needs_no_credential(db: None) -> None:
    answer = Client().get("/healthz")
    assert (answer.status_code, answer.content) == (200, b"ok\n")
