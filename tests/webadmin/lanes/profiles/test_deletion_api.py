"""Retention, holds and delete requests over HTTP."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from django.test import Client

from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service
from webadmin.base.access.services import issue_worker_credential
from webadmin.lanes.profiles.models import DeleteRequest

WHY = {"why": "the customer asked"}
ORDERS = ["retention", "retention-rules", "holds", "delete-requests"]


def post(name: str, body: Any, *, scope: str = "operate") -> Any:
    bearer = issue_worker_credential(name=uuid.uuid4().hex, scopes=[scope], actor="test")
    return Client().post(
        f"/api/v1/operations/{name}",
        json.dumps(body),
        content_type="application/json",
        headers={"Authorization": f"Bearer {bearer.wire_form}"},
    )


@pytest.mark.parametrize("name", ORDERS)
def test_deletions_need_the_operator_scope_and_a_reason(service: Service, name: str) -> None:
    assert post(name, WHY | {"tenant": "acme"}, scope="jobs:poll").status_code == 403
    assert post(name, {"tenant": "acme"}).json()["code"] == "invalid_message"
    assert Client().post(f"/api/v1/operations/{name}", b"{}", content_type="application/json").status_code == 401


def test_a_delete_request_is_previewed_made_and_listed(service: Service) -> None:
    service.add_segments(2)
    body = WHY | {"tenant": "acme", "service": "web", "from_ms": 0}
    assert post("delete-requests", body | {"dry_run": True}).json()["datasets"] == 2
    assert not DeleteRequest.objects.exists()
    made = post("delete-requests", body).json()
    bearer = issue_worker_credential(name="reader", scopes=["operate"], actor="test").wire_form
    answer = Client().get("/api/v1/operations/delete-requests", headers={"Authorization": f"Bearer {bearer}"}).json()
    [listed] = answer["requests"]
    assert (listed["command"], listed["state"], listed["certificates"]) == (made["command"], "hidden", [])
    assert listed["why"] == "the customer asked"


def test_a_hold_answers_409_to_a_request(service: Service) -> None:
    service.add_segments(1)
    assert post("holds", WHY | {"tenant": "acme"}).json()["changed"] is True
    refused = post("delete-requests", WHY | {"tenant": "acme"})
    assert (refused.status_code, refused.json()["code"]) == (409, "tenant_busy")
    assert post("holds", WHY | {"tenant": "acme", "lift": True}).json()["changed"] is True
    assert post("delete-requests", WHY | {"tenant": "acme"}).status_code == 200


def test_retention_is_set_previewed_and_applied(service: Service) -> None:
    old = block_meta(ulid(service.clock.now_ms - 3 * 86_400_000), tenant="acme", level=3)
    service.add(old)
    assert post("retention", WHY).json()["expired"] == []
    assert post("retention-rules", WHY | {"tenant": "acme", "keep_days": 1}).json()["after"] == 1
    assert len(post("retention", WHY | {"dry_run": True}).json()["expired"]) == 1
    assert service.states() == {"final": 1}
    assert post("retention", WHY).json()["dropped_blocks"] == 1


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("retention-rules", {"tenant": "acme"}),
        ("retention-rules", {"tenant": "acme", "days": 400}),
        ("retention-rules", {"keep_days": -1}),
        ("retention-rules", {"keep_days": "1"}),
        ("retention-rules", {"keep_days": 1, "tenant": "a/b"}),
        ("holds", {"tenant": "a/b"}),
        ("holds", {"tenant": "acme", "lift": 1}),
        ("delete-requests", {}),
        ("delete-requests", {"tenant": "acme", "from_ms": 9, "until_ms": 3}),
        ("delete-requests", {"tenant": "acme", "selector": "{"}),
        ("delete-requests", {"tenant": "acme", "deadline_hours": 0}),
        ("delete-requests", {"tenant": "never seen"}),
    ],
)
def test_impossible_orders_are_refused_and_change_nothing(service: Service, name: str, body: dict[str, Any]) -> None:
    service.add_segments(1)
    before = service.dump()
    answer = post(name, WHY | body)
    assert (answer.status_code, answer.json()["code"] in ("invalid_message", "invalid_rule")) == (400, True)
    assert service.dump() == before
