"""A credential above its request rate gets 429 with Retry-After; others, and workers that poll, are not affected."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.webadmin.hostile.conftest import Caller
from tests.webadmin.lanes.catalog.api.conftest import Caller as KeyCaller
from webadmin.base.access import request_rates
from webadmin.base.access.request_rates import BURST_SECONDS, RequestRates
from webadmin.base.connect import ConnectError
from webadmin.query.viewers import viewing


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.CREDENTIAL_REQUESTS_PER_SECOND = 0.2
    monkeypatch.setattr(request_rates, "rates", RequestRates())
    monkeypatch.setattr(request_rates.time, "monotonic", lambda: 1000.0)


def test_a_bucket_fills_with_the_rate_up_to_the_burst() -> None:
    rates, burst = RequestRates(), int(0.2 * BURST_SECONDS)
    assert [rates.take("a", 0.0) for _ in range(burst + 1)] == [0] * burst + [5]
    assert rates.take("b", 0.0) == 0
    assert [rates.take("a", 4.9), rates.take("a", 5.0), rates.take("a", 5.0)] == [1, 0, 5]
    assert [rates.take("a", 10_000.0) for _ in range(burst + 1)] == [0] * burst + [5]


def test_any_number_is_allowed_where_the_rate_is_zero(settings: Any) -> None:
    settings.CREDENTIAL_REQUESTS_PER_SECOND = 0
    assert not any(RequestRates().take("a", 0.0) for _ in range(100))


def test_rest_requests_get_429_and_polls_are_exempt(db: None) -> None:
    caller, other = Caller("operate", "jobs:poll"), Caller("operate", name="other")
    answers = [caller.send("get", "/api/v1/operations/limits") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].headers["Retry-After"] == "5"
    assert answers[-1].json()["code"] == "throttled"
    assert other.send("get", "/api/v1/operations/limits").status_code == 200
    poll = {"worker": "w", "build": "b", "capacity": 1, "updates": []}
    assert caller.post("/api/v1/jobs/poll", poll).status_code == 200


def test_the_catalog_answers_429(db: None) -> None:
    caller = KeyCaller()
    answers = [caller.get("repositories") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[-1].headers["Retry-After"] == "5"
    assert "message" in json.loads(answers[-1].content)


def test_viewers_are_answered_429(db: None, rf: Any) -> None:
    viewer = Caller("profiles:query", "tenant:acme")
    request = rf.get("/pyroscope/render", headers={"Authorization": f"Bearer {viewer.bearer}"})
    viewing.identify_reader(request)
    viewing.identify_reader(request)
    with pytest.raises(ConnectError) as refused:
        viewing.identify_reader(request)
    assert (refused.value.code, refused.value.retry_after_s) == ("resource_exhausted", 5)
