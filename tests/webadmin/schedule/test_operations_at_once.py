"""Operators and workers at once, each on a connection of its own: one of them wins, and nothing is lost."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from django.db import connection

from engine.schedule.limits import EVERYTHING, LimitName
from engine.schedule.model import JobState
from engine.storage import open_store
from tests.webadmin.schedule.test_two_connections import DEADLINE_SECONDS, at_once
from tests.webadmin.service import REASON, FakeWorker, Service, check_invariants
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block, RemovalCause
from webadmin.lanes.profiles.services.isolate_jobs import isolate
from webadmin.lanes.profiles.services.remove_blocks import drop_blocks, finish_removal, removable, start_removal
from webadmin.schedule.command_log import take_head_for_entry
from webadmin.schedule.models import Attempt, Command, Job
from webadmin.schedule.operation_models import JobSplit, LimitChange
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import change_limit
from webadmin.schedule.services.operation import operation
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks

ALL = JobFilter(everything=True)
CONTEXT = ActionContext(actor="operator", why="both at once")
ROUNDS = 4


def evict(service: Service, worker: FakeWorker) -> Job:
    service.add_segments(20)
    for _ in range(4):
        [spec] = worker.take()
        worker.poll(worker.released(spec.job, REASON), capacity=0)
    return Job.objects.get(name=spec.job)


def test_a_job_is_either_cancelled_or_completed(real_service: Service) -> None:
    worker = real_service.worker()
    for _ in range(ROUNDS):
        real_service.add_segments(20)
        [spec] = worker.take()
        report = worker.success(spec.job)
        outcome, _ = at_once(
            lambda: cancel(ALL, context=CONTEXT), lambda report=report: worker.poll(report, capacity=0)
        )
        job = Job.objects.get(name=spec.job)
        assert (job.state == JobState.PARKED) == (outcome.changed == (spec.job,))
        assert job.state in {JobState.PARKED, JobState.DONE}
        check_invariants()
        return_job_blocks(ALL, context=CONTEXT)
        for rest in worker.take(4):
            worker.poll(worker.success(rest.job), capacity=0)


def test_the_same_order_twice_at_once_is_carried_out_once(real_service: Service) -> None:
    worker = real_service.worker()
    for shard in range(2):
        job = evict(real_service, worker)
        outcomes = at_once(lambda: requeue(ALL, context=CONTEXT), lambda: requeue(ALL, context=CONTEXT))
        assert sorted(len(outcome.changed) for outcome in outcomes) == [0, 1]
        assert AuditEntry.objects.filter(action="requeue").count() == shard + 1
        worker.take()
        worker.poll(worker.success(job.name), capacity=0)
        check_invariants()


def test_requeued_and_given_back_at_once_a_job_is_one_of_both(real_service: Service) -> None:
    job = evict(real_service, real_service.worker())
    outcomes = at_once(lambda: requeue(ALL, context=CONTEXT), lambda: return_job_blocks(ALL, context=CONTEXT))
    assert sorted(len(outcome.changed) for outcome in outcomes) == [0, 1]
    job.refresh_from_db()
    assert job.state in {JobState.WAITING, JobState.DISSOLVED}
    check_invariants()


def test_two_isolations_at_once_split_a_job_once(real_service: Service, tmp_path: Path) -> None:
    evict(real_service, real_service.worker())
    store = open_store(f"file://{tmp_path}")
    outcomes = at_once(lambda: isolate(store=store), lambda: isolate(store=store))
    assert sum(len(outcome.split) for outcome in outcomes) == 1
    assert JobSplit.objects.count() == 2
    check_invariants()


def test_orders_and_polls_share_one_log_without_loss(real_service: Service) -> None:
    workers = [real_service.worker() for _ in range(2)]
    for shard in range(1, 5):
        real_service.add_segments(20, shard=shard)

    def work(worker: FakeWorker) -> None:
        for _ in range(4):
            for spec in worker.take():
                worker.poll(worker.success(spec.job), capacity=0)

    def operate() -> None:
        for value in range(4, 8):
            change_limit(name=LimitName.FAILURES_MAX, scope=EVERYTHING, value=value, context=CONTEXT)
            cancel(ALL, context=CONTEXT)
            requeue(ALL, context=CONTEXT)

    at_once(operate, *(lambda worker=worker: work(worker) for worker in workers))
    for worker in workers:
        work(worker)
    check_invariants()
    assert LimitChange.objects.count() == 4
    indexes = list(Command.objects.order_by("index").values_list("command_time_ms", flat=True))
    assert indexes == sorted(indexes)
    assert Attempt.objects.filter(outcome="completed").count() == Job.objects.filter(state="done").count()


@pytest.mark.parametrize("dropped", [20, 8], ids=["all", "some"])
def test_a_poll_that_locked_blocks_yields_to_an_action_that_removes_them(
    real_service: Service, monkeypatch: pytest.MonkeyPatch, dropped: int
) -> None:
    """The order holds the head and waits for the blocks, the poll has the blocks and waits for the head."""
    real_service.add_segments(20)
    worker = real_service.worker()
    has_head, has_blocks = threading.Event(), threading.Event()

    def take_head_with_blocks(**options):
        has_blocks.set()
        return take_head_for_entry(**options)

    monkeypatch.setattr(
        sys.modules["webadmin.schedule.services.apply_change_set"], "take_head_for_entry", take_head_with_blocks
    )

    def remove() -> None:
        with operation() as run:
            has_head.set()
            if connection.features.has_select_for_update:  # SQLite's one writer is this one
                assert has_blocks.wait(DEADLINE_SECONDS)
            blocks = removable(Block.objects.order_by("id").values_list("id", flat=True)[:dropped])
            assert len(blocks) == dropped
            removal = start_removal(run, CONTEXT, RemovalCause.RETENTION, "drop", target="blocks", detail={})
            drop_blocks(removal, blocks)
            finish_removal(run, removal)

    def poll() -> list:
        assert has_head.wait(DEADLINE_SECONDS)
        return worker.take()

    _, taken = at_once(remove, poll)
    assert taken == []  # 12 blocks are no job yet
    assert real_service.states() == {"dropped": dropped} | ({"queued": 20 - dropped} if dropped < 20 else {})
    check_invariants()
