"""Counting the log: each entry once, late entries too, and since when nothing is completed."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.webadmin.service import REASON, Service
from webadmin.base.actions.action import ActionContext
from webadmin.progress.models import CountingMark, FlowMinute, FlowTotal
from webadmin.progress.services import count_log
from webadmin.progress.services.count_log import FLOWS_KEPT_MS, GAP_KEPT_MS
from webadmin.schedule.models import Command
from webadmin.schedule.services.operation import operation


def flows() -> Counter[tuple[str, int, str]]:
    found: Counter[tuple[str, int, str]] = Counter()
    for row in FlowMinute.objects.all():
        for name in ("arrived_blocks", "drained_blocks", "completed_jobs"):
            found[row.tenant, row.level, name] += getattr(row, name)
    return +found


def totals() -> dict[str, int]:
    found: Counter[str] = Counter()
    for row in FlowTotal.objects.all():
        found[row.name] += row.count
    return dict(found)


def test_arrivals_and_merges_are_counted_by_tenant_and_level(service: Service) -> None:
    service.add_segments(20, datasets=(("acme", "web"), ("umbrella", "api")))
    worker = service.worker()
    [spec] = worker.take()
    service.clock.advance(3)
    worker.poll(worker.success(spec.job))
    count_log()
    assert flows() == {
        ("", 0, "arrived_blocks"): 20,
        ("", 0, "drained_blocks"): 20,
        ("", 0, "completed_jobs"): 1,
        ("acme", 1, "arrived_blocks"): 1,
        ("umbrella", 1, "arrived_blocks"): 1,
    }
    assert FlowMinute.objects.get(drained_blocks=20).run_ms == 3000
    wanted = {"blocks_added": 22, "blocks_merged": 20, "jobs_added": 1, "jobs_assigned": 1, "jobs_completed": 1}
    assert {name: totals().get(name) for name in wanted} == wanted


def test_counting_twice_counts_once(service: Service) -> None:
    service.add_segments(3)
    assert count_log().commands == 1
    before = (flows(), totals())
    assert count_log().commands == 0
    assert (flows(), totals()) == before
    service.add_segments(4)
    count_log()
    assert flows() == {("", 0, "arrived_blocks"): 7}


def test_failures_and_reassignments_are_counted_by_outcome(service: Service) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.released(spec.job, REASON), capacity=0)
    assert worker.take()
    count_log()
    found = totals()
    assert (found["runs_failed"], found["jobs_assigned"], found["jobs_reassigned"]) == (1, 2, 1)


def test_an_entry_that_is_committed_late_is_counted_late(service: Service) -> None:
    service.add_segments(1)
    service.add_segments(2)
    service.add_segments(4)
    late = Command.objects.order_by("index")[1]
    Command.objects.filter(index=late.index).delete()
    count_log()
    assert flows() == {("", 0, "arrived_blocks"): 5}
    late.save(force_insert=True)
    count_log()
    assert flows() == {("", 0, "arrived_blocks"): 7}
    assert CountingMark.objects.get().gaps == {}


def test_a_gap_that_never_fills_is_forgotten(service: Service) -> None:
    service.add_segments(1)
    service.add_segments(1)
    service.add_segments(1)
    Command.objects.filter(index=Command.objects.order_by("index")[1].index).delete()
    count_log()
    assert len(CountingMark.objects.get().gaps) == 1
    service.clock.advance(GAP_KEPT_MS / 1000 + 1)
    count_log()
    assert CountingMark.objects.get().gaps == {}


def test_old_flows_are_forgotten_and_totals_stay(service: Service) -> None:
    service.add_segments(3)
    count_log()
    service.clock.advance(FLOWS_KEPT_MS / 1000 + 120)
    count_log()
    assert not FlowMinute.objects.exists()
    assert totals()["blocks_added"] == 3


def test_a_standstill_begins_with_due_work_and_ends_with_a_completion(service: Service) -> None:
    service.add_segments(3)
    count_log()
    assert CountingMark.objects.get().stalled_since_ms is None, "three blocks of twenty are not due"
    service.add_segments(17)
    count_log()
    since = CountingMark.objects.get().stalled_since_ms
    assert since == service.clock.now_ms
    worker = service.worker()
    [spec] = worker.take()
    service.clock.advance(10)
    count_log()
    assert CountingMark.objects.get().stalled_since_ms == since, "an assignment completes nothing"
    worker.poll(worker.success(spec.job), capacity=0)
    count_log()
    mark = CountingMark.objects.get()
    assert mark.stalled_since_ms is None
    assert mark.last_completed_ms == service.clock.now_ms


@pytest.mark.parametrize("change_set", [[], {"added": None}, {"added": [1, {}]}, {"completed": [{"job": "x"}]}])
def test_an_entry_of_an_unknown_form_is_passed_over(service: Service, change_set: object) -> None:
    service.add_segments(1)
    Command.objects.update(change_set=change_set)
    count_log()
    assert flows() == {}
    service.add_segments(1)
    count_log()
    assert flows() == {("", 0, "arrived_blocks"): 1}


def test_the_parts_of_a_split_job_are_jobs_added(service: Service) -> None:
    service.add_segments(20)
    [spec] = service.worker().take()
    ids = [source.id for source in spec.sources]
    with operation() as run:
        run.write("split", ActionContext(actor="control"), detail={"jobs": [spec.job], "parts": [ids[:10], ids[10:]]})
    with operation() as run:
        run.write("pause", ActionContext(actor="op"), detail={"jobs": [], "parts": None})
    count_log()
    assert totals()["jobs_added"] == 3
