"""Paused work is called paused, on progress, standstill and the front page; what stands still by itself is named."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.test import Client, RequestFactory

from engine.schedule.limits import EVERYTHING, Scope, ScopeKind
from engine.schedule.pauses import PauseMode
from engine.schedule.progress import Flow, Outlook, clearing
from tests.webadmin.admin import timeline_rows, tsdb_rows
from tests.webadmin.probes import probe
from tests.webadmin.service import REASON, Service
from webadmin.base.actions.action import ActionContext
from webadmin.console.pages import front_page
from webadmin.progress.facts import read_standstill
from webadmin.progress.report import progress_report
from webadmin.progress.services import count_log
from webadmin.schedule.services.pause_schedule import pause, resume

OPERATOR = ActionContext(actor="operator", why="maintenance")
SEGMENTS = Scope(ScopeKind.TENANT, "")


@pytest.fixture(autouse=True)
def _fresh_sums(db: None) -> None:
    cache.clear()


def notices() -> list[str]:
    context = front_page(RequestFactory().get("/"), {})
    return [notice.text.replace("\N{NO-BREAK SPACE}", " ") for notice in context["notices"]]


def drain_at_a_rate(service: Service) -> None:
    """Merge a job in a counted minute, so that there is a rate at which a backlog shrinks."""
    count_log()
    service.clock.advance(60)
    service.add_segments(20, shard=9)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=1)
    count_log()


def wait_in_a_job(service: Service) -> None:
    """Let a job of segments wait for a worker, with a polling worker that offers a slot."""
    service.add_segments(20, shard=2)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job), capacity=0)
    pause(scope=SEGMENTS, context=OPERATOR)
    worker.poll(capacity=2)


def test_a_backlog_that_is_paused_whole_is_not_promised(service: Service) -> None:
    drain_at_a_rate(service)
    wait_in_a_job(service)
    service.add_segments(20, shard=3)
    count_log()
    report = progress_report()
    [row] = [row for row in report.tenants if row.tenant == "" and row.level == 0]
    for one in (row, report.everything):
        assert (one.backlog.due_blocks, one.backlog.paused_blocks) == (40, 40)
        assert (one.clearing.outlook, one.clearing.words()) == (Outlook.PAUSED, "paused")
    out = StringIO()
    call_command("progress", stdout=out)
    assert "paused" in out.getvalue()
    assert "never at this rate" not in out.getvalue()


def test_only_what_is_not_paused_is_promised() -> None:
    flow = Flow(seconds=60, drained_blocks=60)
    shrinks = clearing(30, flow, paused_blocks=10)
    assert (shrinks.outlook, shrinks.seconds) == (Outlook.SHRINKS, 20)
    assert shrinks.words() == "in 20 s, without 10 paused blocks"
    never = clearing(30, Flow(seconds=60, arrived_blocks=1), paused_blocks=1)
    assert never.words() == "never at this rate, without 1 paused block"


def test_a_drained_job_is_not_paused(service: Service) -> None:
    service.add_segments(20, shard=2)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job), capacity=0)
    pause(scope=EVERYTHING, mode=PauseMode.DRAIN, context=OPERATOR)
    assert progress_report().everything.backlog.paused_blocks == 0
    assert read_standstill().paused_jobs == 0


def test_the_front_page_does_not_wait_for_a_worker_to_do_what_is_paused(service: Service) -> None:
    wait_in_a_job(service)
    service.add_segments(20, shard=3)
    assert notices()[-1] == "All that could be done now is paused: 1 job and 1 queue."
    assert not any("worker" in text for text in notices())
    resume(scope=SEGMENTS, context=OPERATOR)
    assert notices()[-1] == "Waiting for a worker with room: 1 job waiting, 1 queue ready."
    pause(scope=Scope(ScopeKind.LEVEL, "1"), context=OPERATOR)
    assert notices()[-1] == "Waiting for a worker with room: 1 job waiting, 1 queue ready."


def test_standstill_counts_what_pauses_hold(service: Service, admin_client: Client) -> None:
    wait_in_a_job(service)
    service.add_segments(20, shard=3)
    count_log()
    told = probe("/progressz").json()
    [blocker] = [one for one in told["blockers"] if one["code"] == "paused"]
    assert "with 40 blocks due in 1 queue and 1 job" in blocker["text"]
    page = admin_client.get("/admin/standstill/").content.decode().replace("\N{NO-BREAK SPACE}", " ")
    assert "1 queue, of them 1 paused" in page
    assert "1 job, of them 1 paused" in page


def test_parked_jobs_are_named_and_hold_nothing_else(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=1)
    count_log()
    answer = probe("/progressz")
    told = answer.json()
    assert (answer.status_code, told["blocker"]) == (200, None)
    assert [(one["code"], one["text"]) for one in told["blockers"]] == [("parked", "1 job parked: it keeps 20 blocks")]
    assert told["summary"] == "nothing is due; 1 job parked: it keeps 20 blocks"


def test_the_report_has_what_lanes_wait_for_and_their_blockers(service: Service, admin_client: Client) -> None:
    timeline_rows.fill_timeline()
    tsdb_rows.fill_tsdb()
    count_log()
    codes = {one["code"] for one in probe("/progressz").json()["blockers"]}
    assert {"tables_unpublished", "chunks_set_aside", "outbox_refused"} <= codes
    rows = {(row.lane, row.waiting.name) for row in progress_report().lanes}
    tables = [name for lane, name in rows if lane == "tables"]
    assert tables
    assert any(lane == "tsdb" for lane, _ in rows)
    out = StringIO()
    call_command("progress", "--json", stdout=out)
    assert {row["name"] for row in json.loads(out.getvalue())["lanes"]} >= set(tables)
    page = admin_client.get("/admin/backlog/").content.decode()
    assert all(name in page for name in tables)
    pause(scope=Scope(ScopeKind.LANE, "tables"), context=OPERATOR)
    assert {row.words for row in progress_report().lanes if row.lane == "tables"} == {"paused"}
