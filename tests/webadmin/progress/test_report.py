"""The same numbers for admin, API, command and metrics: backlog, rates, outlook."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from engine.lanes.profiles.plan.retention import DAY_MS
from engine.schedule.progress import ASSUMED_SECONDS_PER_MIB, MIB
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked
from webadmin.progress.log_counts import count_commands
from webadmin.progress.report import ProgressReport, progress_report
from webadmin.progress.services import count_log
from webadmin.schedule.models import Command


def merge_all(service: Service, seconds: float = 2.0) -> None:
    worker = service.worker()
    while specs := worker.take(4):
        service.clock.advance(seconds)
        worker.poll(*(worker.success(spec.job) for spec in specs), capacity=0)


def row(report: ProgressReport, tenant: str, level: int) -> dict:
    [found] = [row for row in report.tenants if (row.tenant, row.level) == (tenant, level)]
    return found.to_json()


def test_a_backlog_without_workers_never_clears(service: Service) -> None:
    count_log()
    service.add_segments(40)
    service.clock.advance(10)
    count_log()
    report = progress_report()
    segments = row(report, "", 0)
    assert (segments["blocks"], segments["due_blocks"], segments["jobs"]) == (40, 40, 0)
    assert segments["arrivals_per_second"] == 4.0
    assert segments["drained_per_second"] == 0.0
    assert (segments["clear"], segments["clear_seconds"]) == ("never", None)
    assert segments["clear_words"] == "never at this rate"


def test_a_shrinking_backlog_has_an_estimated_end(service: Service) -> None:
    service.add_segments(60)
    service.clock.advance(120)
    count_log()
    worker = service.worker()
    [spec] = worker.take(1)
    service.clock.advance(20)
    worker.poll(worker.success(spec.job), capacity=0)
    count_log()
    everything = progress_report(window_seconds=60).everything
    assert everything.flow.drained_blocks == 20
    assert everything.clearing.seconds is not None
    assert everything.clearing.seconds > 0


def test_parked_blocks_are_counted_by_kind(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    from webadmin.base.actions.action import ActionContext
    from webadmin.schedule.register import JobFilter
    from webadmin.schedule.services.cancel_jobs import cancel

    assert cancel(JobFilter(names=(spec.job,)), context=ActionContext(actor="op")).changed
    count_log()
    total = progress_report().everything.to_json()
    assert (total["blocks"], total["parked_jobs"], total["parked_blocks"], total["clear"]) == (0, 1, 20, "clear")


def test_what_is_measured_sizes_the_fleet(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    service.clock.advance(5)
    worker.poll(worker.success(spec.job), capacity=0)
    service.add_segments(20)
    count_log()
    report = progress_report()
    # Segments of equal size: 20 of them took one slot five seconds, so what waits takes as long by bytes.
    expected = 5.0 * report.everything.backlog.bytes / report.everything.flow.drained_bytes
    assert report.work_seconds == pytest.approx(expected)


def test_api_command_and_report_agree(service: Service, reader: dict[str, str]) -> None:
    service.add_segments(25, datasets=(("acme", "web"),))
    merge_all(service)
    count_log()
    wanted = json.loads(json.dumps(progress_report().to_json()))
    answer = Client().get("/api/v1/progress", headers=reader)
    assert answer.status_code == 200
    assert answer.json() == wanted
    out = StringIO()
    call_command("progress", "--json", stdout=out)
    assert json.loads(out.getvalue()) == wanted
    table = StringIO()
    call_command("progress", stdout=table)
    assert "acme" in table.getvalue()
    assert "nothing due" in table.getvalue()


@pytest.mark.parametrize("window", ["0", "-1", "x", "86401", "99999999999999999999"])
def test_a_window_out_of_bounds_is_refused(service: Service, reader: dict[str, str], window: str) -> None:
    answer = Client().get("/api/v1/progress", {"window_seconds": window}, headers=reader)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


def test_the_report_costs_as_many_queries_with_many_queues(service: Service) -> None:
    service.add_segments(2)
    count_log()
    with CaptureQueriesContext(connection) as few:
        progress_report()
    for shard in range(30):
        service.add_segments(1, shard=shard)
    count_log()
    with CaptureQueriesContext(connection) as many:
        progress_report()
    assert len(many) == len(few) <= 22


def test_progress_needs_the_read_scope(service: Service) -> None:
    from webadmin.base.access.services import issue_worker_credential

    poller = issue_worker_credential(name="poller", actor="test").wire_form
    for address in ("/api/v1/progress", "/api/v1/explain/x"):
        assert Client().get(address).status_code == 401
        refused = Client().get(address, headers={"Authorization": f"Bearer {poller}"})
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")


def test_what_retention_drops_counts_as_drained(service: Service) -> None:
    service.add_segments(40)
    service.clock.advance(40 * DAY_MS // 1000)
    count_log()
    service.clock.advance(60)
    assert row(progress_report(), "", 0)["clear_words"] == "never at this rate"
    service.add_segments(5)
    apply_retention(context=ActionContext(actor="control"))
    count_log()
    report = progress_report()
    segments = row(report, "", 0)
    assert report.everything.flow.drained_blocks == report.everything.flow.dropped_blocks == 40
    assert segments["drained_per_second"] == segments["dropped_per_second"] > segments["arrivals_per_second"] > 0
    [shard] = [one for one in report.shards if one.shard == 1]
    assert shard.flow.dropped_blocks == 40
    assert shard.flow.seconds_per_byte() == ASSUMED_SECONDS_PER_MIB / MIB, "no run drained them"


def test_what_is_dropped_on_request_counts_only_where_it_was_waited_for(service: Service) -> None:
    context = ActionContext(actor="operator", why="asked")
    service.add_segments(20)
    merge_all(service)
    count_log()
    before = progress_report().everything.flow
    request_deletion(DeletionTarget(tenant="acme"), context=context)
    rewrite_masked(context=context)
    count_log()
    flow = progress_report().everything.flow
    assert service.states() == {"replaced": 20, "dropped": 1}
    assert (flow.drained_blocks - before.drained_blocks, flow.dropped_blocks) == (1, 1)
    assert flow.seconds_per_byte() == before.seconds_per_byte()


def test_the_result_of_a_rewrite_counts_on_its_own_level_and_drains_no_backlog(service: Service) -> None:
    context = ActionContext(actor="operator", why="asked")
    services = [("acme", "web"), ("acme", "api")]
    service.add(block_meta(ulid(service.clock.now_ms), tenant="acme", level=3, datasets=services, with_index=True))
    request_deletion(DeletionTarget(tenant="acme", service="api"), context=context)
    [name] = rewrite_masked(context=context).jobs
    worker = service.worker()
    worker.take()
    worker.poll(worker.success(name), capacity=0)
    counts = count_commands(Command.objects.order_by("index"))
    added = {level: count for (_, level, what), count in counts.totals.items() if what == "blocks_added"}
    assert added == {3: 2}
    assert sum(flow["drained_blocks"] for flow in counts.flows.values()) == 0
    assert sum(flow["completed_jobs"] for flow in counts.flows.values()) == 1
