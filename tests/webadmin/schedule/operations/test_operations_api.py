"""Operators' actions over HTTP: who may run them, what is checked, and that they are the same as the services."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from engine.schedule.model import JobState
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry, WorkerCredential
from webadmin.base.access.services import issue_worker_credential
from webadmin.schedule.models import Job, Worker

ACTIONS = [
    "limits",
    "level-policies",
    "pauses",
    "resume",
    "requeue",
    "cancel",
    "return-job-blocks",
    "reset-failures",
    "pin",
    "unpin",
    "release",
]
LISTS = ["limits", "level-policies", "pauses", "parked", "quarantine", "breakages"]
WHY = {"why": "it was the disk"}
ALL = WHY | {"filter": {"all": True}}


class Operator:
    """Somebody with a credential that may operate."""

    def __init__(self) -> None:
        self.bearer = issue_worker_credential(name="night shift", scopes=["operate"], actor="test").wire_form

    def post(self, name: str, body: Any) -> Any:
        return Client().post(
            f"/api/v1/operations/{name}", json.dumps(body), content_type="application/json", headers=self._headers()
        )

    def get(self, name: str, **query: Any) -> Any:
        return Client().get(f"/api/v1/operations/{name}", query, headers=self._headers())

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.bearer}"}


@pytest.fixture
def operator(service: Service) -> Operator:
    return Operator()


def test_the_error_limit_is_raised_for_an_hour_in_one_call(operator: Operator) -> None:
    body = WHY | {"limit": "failures_max", "value": 10, "for_seconds": 3600}
    answer = operator.post("limits", body)
    assert (answer.status_code, answer.json()["before"], answer.json()["after"]) == (200, 3, 10)
    [row] = operator.get("limits").json()["limits"]
    assert (row["actor"], row["why"], row["value"]) == ("credential:night shift", "it was the disk", 10)
    assert row["valid_until_ms"] == row["set_at_ms"] + 3_600_000


def test_a_tenant_that_nobody_has_seen_is_noted_in_the_answer(operator: Operator) -> None:
    limit = {"limit": "failures_max", "value": 9, "scope": {"kind": "tenant", "value": "acmee"}}
    for body in (limit | {"dry_run": True}, limit):
        [note] = operator.post("limits", WHY | body).json()["notes"]
        assert note.startswith("no tenant 'acmee' is known: ")


def test_the_register_lists_blocks_and_reason_by_filter(operator: Operator, evicted) -> None:
    job = evicted(shard=2)
    [row] = operator.get("parked", error_class="ChecksumMismatch", level=0, shard=2, tenant="", kind="evicted").json()[
        "jobs"
    ]
    assert (row["job"], row["kind"], row["error_class"], row["attempts"]) == (
        job.name,
        "evicted",
        "ChecksumMismatch",
        4,
    )
    assert row["blocks"] == job.spec["sources"]
    assert operator.get("parked", before=row["id"]).json() == {"jobs": []}
    assert operator.get("parked", error_class="Other").json() == {"jobs": []}


def test_parked_jobs_are_requeued_over_http(operator: Operator, evicted) -> None:
    job = evicted()
    preview = operator.post("requeue", ALL | {"dry_run": True}).json()
    assert (preview["changed"], preview["dry_run"], preview["commands"]) == ([job.name], True, [])
    assert Job.objects.get().state == JobState.PARKED
    done = operator.post("requeue", ALL).json()
    assert (done["changed"], Job.objects.get().state) == ([job.name], JobState.WAITING)
    assert AuditEntry.objects.get(action="requeue").actor == "credential:night shift"


@pytest.mark.parametrize(
    ("name", "body", "state"),
    [
        ("cancel", ALL, "parked"),
        ("pin", ALL | {"worker": "worker-1"}, "leased"),
        ("unpin", ALL, "leased"),
        ("reset-failures", ALL, "leased"),
        ("return-job-blocks", ALL, "leased"),
    ],
)
def test_each_action_reaches_its_service(
    service: Service, operator: Operator, name: str, body: dict[str, Any], state: str
) -> None:
    service.add_segments(20)
    service.worker("worker-1").take()
    answer = operator.post(name, body)
    assert answer.status_code == 200
    assert answer.json()["action"] == name.replace("-", "_")
    assert Job.objects.get().state == state


def test_a_scope_is_drained_and_resumed_over_http(operator: Operator) -> None:
    scope = {"scope": {"kind": "tenant", "value": "acme"}}
    assert operator.post("pauses", WHY | scope | {"mode": "drain"}).json()["mode"] == "drain"
    [row] = operator.get("pauses").json()["pauses"]
    assert (row["scope"], row["mode"]) == (scope["scope"], "drain")
    assert operator.post("resume", WHY | scope).json()["mode"] is None
    assert operator.post("pauses", WHY | scope | {"dry_run": True}).json()["mode"] == "pause", "if no mode is said"
    assert operator.get("pauses").json() == {"pauses": []}


def test_an_empty_quarantine_and_no_breakages_are_empty_lists(operator: Operator) -> None:
    assert operator.get("quarantine").json() == {"quarantine": []}
    assert operator.get("breakages").json() == {"breakages": []}
    released = operator.post("release", WHY | {"blocks": ["x"]}).json()
    assert released["left"] == [{"job": "x", "reason": "it is not in quarantine"}]


def test_a_broken_build_is_listed(operator: Operator, evicted) -> None:
    for shard in (1, 2, 3):
        evicted(shard=shard)
    assert operator.get("breakages").json() == {
        "breakages": [{"build": "test", "error_class": "ChecksumMismatch", "failed_jobs": 3, "jobs": 3}]
    }


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_without_a_reason_is_refused(operator: Operator, name: str) -> None:
    for body in ({}, {"why": ""}, []):
        answer = operator.post(name, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_message")
    assert not AuditEntry.objects.exclude(action="issue_worker_credential").exists()


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("limits", {"limit": "speed", "value": 1}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max", "value": "9"}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max"}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max", "valeu": 9}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max", "value": 9, "dryrun": True}, 400, "invalid_message"),
        (
            "limits",
            {"limit": "failures_max", "value": 9, "scope": {"kind": "lane", "name": "x"}},
            400,
            "invalid_message",
        ),
        ("requeue", {"filter": {"all": True, "tennant": "acme"}}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max", "value": 5000}, 400, "limit_refused"),
        (
            "limits",
            {"limit": "lease_seconds", "value": 9, "scope": {"kind": "job", "value": "j"}},
            400,
            "limit_refused",
        ),
        ("limits", {"limit": "weight", "value": 9, "scope": {"kind": "lane"}}, 400, "scope_refused"),
        (
            "limits",
            {"limit": "running_max", "value": 9, "scope": {"kind": "lane", "value": "nosuch"}},
            400,
            "scope_refused",
        ),
        ("pauses", {"mode": "pause", "scope": {"kind": "lane", "value": "nosuch"}}, 400, "scope_refused"),
        ("limits", {"limit": "failures_max", "value": 9, "for_seconds": 0}, 400, "invalid_message"),
        ("limits", {"limit": "failures_max", "value": 9, "for_seconds": 1e9}, 400, "invalid_message"),
        ("pauses", {"mode": "stop"}, 400, "invalid_message"),
        ("pauses", {"mode": "pause", "scope": {"kind": "job", "value": "j"}}, 400, "scope_refused"),
        ("requeue", {}, 400, "filter_empty"),
        ("requeue", {"filter": {"jobs": "all"}}, 400, "invalid_message"),
        ("requeue", {"filter": {"jobs": ["j"] * 1001}}, 400, "invalid_message"),
        ("requeue", {"filter": {"level": -1}}, 400, "invalid_message"),
        ("requeue", {"filter": {"all": "yes"}}, 400, "invalid_message"),
        ("requeue", {"filter": {"kind": "lost"}}, 400, "invalid_message"),
        ("cancel", {"filter": {"tenant": "a\0b"}}, 400, "invalid_message"),
        ("pin", {"filter": {"all": True}, "worker": "nobody"}, 404, "not_found"),
        ("release", {}, 400, "filter_empty"),
    ],
)
def test_a_bad_action_is_refused_with_a_stable_code(
    operator: Operator, name: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = operator.post(name, WHY | body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert not Worker.objects.exists()


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("scopes", [["jobs:poll"], ["blocks:add", "tenant:*"], []])
def test_only_operators_may_look(operator: Operator, name: str, scopes: list[str]) -> None:
    WorkerCredential.objects.update(scopes=scopes)
    answer = operator.get(name)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")


@pytest.mark.parametrize("name", ACTIONS)
def test_only_operators_may_act(operator: Operator, name: str) -> None:
    WorkerCredential.objects.update(scopes=["jobs:poll"])
    assert operator.post(name, ALL).status_code == 403
    operator.bearer = "lw_000000000000_" + "A" * 43
    assert operator.post(name, ALL).status_code == 401


def test_a_bad_page_is_the_first_page(operator: Operator) -> None:
    for before in ("x", "-1", "9" * 40, "²"):
        assert operator.get("parked", before=before).status_code == 200
