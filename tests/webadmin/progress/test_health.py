"""Alive, ready, and moving: three questions with three answers, and the blocker by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection
from django.test import Client

from engine.schedule.limits import Scope, ScopeKind
from tests.webadmin.probes import probe
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.base.database import answer_time
from webadmin.progress import views
from webadmin.progress.facts import Standstill, read_standstill
from webadmin.progress.health import COUNTING_LATE_MS, judge, without_names
from webadmin.progress.services import count_log
from webadmin.schedule.services.pause_schedule import pause

IDLE = Standstill(
    due_queues=0,
    due_jobs=0,
    waiting_jobs=0,
    leased_jobs=0,
    expired_jobs=0,
    parked_jobs=0,
    live_jobs=0,
    queue_max=100,
    polling_workers=1,
    known_workers=1,
    offered_capacity=2,
    paused=(),
    paused_blocks=0,
    broken_builds=(),
    counted_ms_ago=1000,
    stalled_ms=None,
    completed_ms_ago=None,
    next_ready_in_ms=None,
)
BROKEN = "merging is broken in 0.2.0: 7 of 20 recent jobs failed with ChecksumMismatch"
STALLED = {"due_queues": 3, "stalled_ms": 16 * 60_000}


@pytest.mark.parametrize(
    ("change", "is_healthy", "blocker", "summary"),
    [
        ({}, True, None, "nothing is due"),
        ({"next_ready_in_ms": 24_000}, True, None, "nothing is due; the next queue is ready in 24 s"),
        ({"due_queues": 3}, True, None, "3 queues ready, 0 jobs not done"),
        ({"due_queues": 3, "stalled_ms": 14 * 60_000}, True, None, "nothing completed for 14 min"),
        (STALLED, False, "nothing_completes", "0 jobs running, and none was completed"),
        (STALLED | {"polling_workers": 0}, False, "no_workers", "no worker polls: 1 known and silent"),
        (STALLED | {"polling_workers": 0, "known_workers": 0}, False, "no_workers", "none has ever polled"),
        (STALLED | {"offered_capacity": 0}, False, "no_capacity", "1 worker polling, and none offers a free slot"),
        (STALLED | {"live_jobs": 100}, False, "schedule_full", "holds 100 jobs and its limit is 100"),
        (STALLED | {"leased_jobs": 2, "expired_jobs": 2}, False, "leases_over", "the leases of all jobs are over"),
        ({"broken_builds": (BROKEN,)}, False, "merging_broken", "nothing is due"),
        (STALLED | {"broken_builds": (BROKEN,), "polling_workers": 0}, False, "merging_broken", BROKEN),
        ({"paused": ("everything (pause)",), "paused_blocks": 40}, True, "paused", "holds everything (pause), with 40"),
        ({"counted_ms_ago": COUNTING_LATE_MS + 1}, False, "not_counting", "nothing is due"),
        ({"slow_database": "the database takes 40 ms"}, True, None, "nothing is due; the database takes 40 ms"),
        ({"counted_ms_ago": None}, False, "not_counting", "nothing is due"),
        ({"due_queues": 1, "polling_workers": 0}, True, "no_workers", "1 queue ready, 0 jobs not done: work is due"),
    ],
)
def test_the_blocker_is_named_and_only_a_standstill_is_an_illness(
    change: dict[str, object], is_healthy: bool, blocker: str | None, summary: str
) -> None:
    health = judge(replace(IDLE, **change), stalled_after_seconds=15 * 60)
    assert health.is_healthy is is_healthy
    assert health.to_json()["blocker"] == blocker
    assert summary in health.summary
    assert all(found.text and found.remedy for found in health.blockers)


@pytest.fixture(autouse=True)
def _fresh_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_readiness", None)
    monkeypatch.setattr(views, "READY_SECONDS", 0.0)


def test_a_standstill_ends_the_progress_check_and_a_merge_mends_it(service: Service) -> None:
    count_log()
    assert probe("/progressz").status_code == 200
    service.add_segments(20)
    count_log()
    service.clock.advance(16 * 60)
    count_log()
    stalled = probe("/progressz")
    assert (stalled.status_code, stalled.json()["status"], stalled.json()["blocker"]) == (503, "stalled", "no_workers")
    assert "nothing completed for 16 min" in stalled.json()["summary"]
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=1)
    count_log()
    assert probe("/progressz").status_code == 200


def test_what_an_operator_holds_is_named_and_not_ill(service: Service) -> None:
    service.add_segments(20)
    pause(scope=Scope(ScopeKind.GLOBAL), context=ActionContext(actor="op", why="upgrade"))
    count_log()
    service.clock.advance(16 * 60)
    count_log()
    answer = probe("/progressz")
    assert answer.status_code == 200
    assert answer.json()["paused"] == ["everything (pause)"]
    assert answer.json()["blocker"] == "paused"


def test_the_progress_check_names_no_tenant_and_needs_the_token(service: Service) -> None:
    service.add_segments(20)
    pause(scope=Scope(ScopeKind.TENANT, "only-acme-knows"), context=ActionContext(actor="op"))
    count_log()
    answer = probe("/progressz")
    assert answer.json()["paused"] == ["a tenant"]
    assert "only-acme-knows" not in answer.content.decode()
    facts = replace(read_standstill(), capped=("tenant only-acme-knows has 5 of 5 jobs",), isolation_stop="of acme")
    told = str(judge(without_names(facts), stalled_after_seconds=1).to_json())
    assert "1 cap is reached" in told
    assert "acme" not in told
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": settings.METRICS_TOKEN}):
        for path in ("/progressz", "/metrics", "/api/schema/", "/api/docs/"):
            assert Client().get(path, headers=headers).status_code in (401, 403), path
    for path in ("/api/schema/", "/api/docs/"):
        assert probe(path).status_code == 200


def test_the_schema_is_shown_to_signed_in_users(admin_client: Client) -> None:
    page = admin_client.get("/api/docs/")
    assert page.status_code == 200
    assert "<script>" not in page.content.decode(), "the policy of scripts would refuse it"
    assert admin_client.get("/api/schema/").status_code == 200


def test_the_readiness_of_the_database_is_cached(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(views, "READY_SECONDS", 3600.0)
    monkeypatch.setattr(views, "_problem", lambda: asked.append(1.0) or "")
    assert [Client().get("/readyz").status_code for _ in range(20)] == [200] * 20
    assert len(asked) == 1
    monkeypatch.setattr(views, "READY_SECONDS", 0.0)
    assert Client().get("/readyz").status_code == 200
    assert len(asked) == 2


def test_a_pause_of_one_tenant_covers_its_queues_only(service: Service) -> None:
    service.add_segments(20)
    before = read_standstill()
    pause(scope=Scope(ScopeKind.TENANT, "acme"), context=ActionContext(actor="op"))
    assert read_standstill().due_queues == before.due_queues == 1
    pause(scope=Scope(ScopeKind.TENANT, ""), context=ActionContext(actor="op"))
    held = read_standstill()
    assert (held.due_queues, held.paused_blocks, held.is_work_due) == (0, 20, False)


def test_a_database_that_answers_slowly_is_a_blocker_beside_the_work(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_log()
    assert probe("/progressz").json()["blockers"] == []
    monkeypatch.setattr(answer_time, "ANSWER_MS_MAX", -1.0)
    answer = probe("/progressz")
    assert (answer.status_code, answer.json()["blocker"]) == (200, None)
    [blocker] = answer.json()["blockers"]
    assert blocker["code"] == "database_slow"
    assert blocker["text"].endswith(" ms for an empty query")


def test_missing_counts_are_a_blocker(service: Service) -> None:
    assert probe("/progressz").json()["blocker"] == "not_counting"
    count_log()
    assert probe("/progressz").status_code == 200
    service.clock.advance(COUNTING_LATE_MS / 1000 + 1)
    assert probe("/progressz").json()["blocker"] == "not_counting"


def test_a_process_is_ready_with_a_whole_database_only(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().get("/readyz").content == b"ok\n"
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'progress'")
    missing = Client().get("/readyz")
    assert missing.status_code == 503
    assert b"missing: run manage.py migrate" in missing.content


@pytest.mark.parametrize("failure", [OperationalError, InterfaceError])
def test_a_process_without_database_is_alive_and_not_ready(
    db: None, monkeypatch: pytest.MonkeyPatch, failure: type[Exception]
) -> None:
    def refuse(connection: object) -> object:
        raise failure("no")

    monkeypatch.setattr(views, "MigrationExecutor", refuse)
    assert Client().get("/healthz").status_code == 200
    assert Client().get("/readyz").status_code == 503
    assert Client().post("/readyz").status_code == 405
