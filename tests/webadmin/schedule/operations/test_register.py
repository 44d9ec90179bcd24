"""Parked jobs and what operators do with it: requeue, set aside, give back, pin, reset."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.protocol.messages import FailureReason
from engine.schedule.limits import EVERYTHING, LimitName
from engine.schedule.model import AttemptOutcome, JobState, ParkedKind
from engine.schedule.priority import FAILURE_DELAY_MS
from tests.webadmin.service import REASON, Service
from webadmin.base.access.models import AuditEntry
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.models import Block
from webadmin.schedule.errors import FilterEmpty, NotFound
from webadmin.schedule.models import Attempt, Command, Job, LogHead
from webadmin.schedule.operation_models import JobPin
from webadmin.schedule.register import JobFilter, count_by_error_class, parked_jobs
from webadmin.schedule.services.adjust_jobs import pin, reset_failures, unpin
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.change_limit import change_limit
from webadmin.schedule.services.requeue_jobs import requeue
from webadmin.schedule.services.return_job_blocks import return_job_blocks

FAILURES_MAX = 3
ALL = JobFilter(everything=True)
OTHER = FailureReason(error_class="Truncated", message="ends early", object="b/block.bin")


def test_an_evicted_job_is_in_the_register_with_its_blocks_and_its_last_error(service: Service, evicted) -> None:
    job = evicted()
    [row] = parked_jobs()
    assert (row.name, row.why, row.last_error_class) == (job.name, "evicted", "ChecksumMismatch")
    assert row.last_error_message == REASON.message
    assert row.source_blocks.count() == 20


@pytest.mark.row("invariant-13")
def test_every_parked_job_is_in_the_register_and_can_be_requeued(
    service: Service, evicted, context: ActionContext
) -> None:
    names = {evicted(shard=shard).name for shard in (1, 2, 3)}
    assert {row.name for row in parked_jobs()} == names
    assert set(requeue(ALL, context=context).changed) == names
    assert not parked_jobs().exists()


def test_a_requeued_job_is_merged_as_if_nothing_had_been(service: Service, evicted, context: ActionContext) -> None:
    job = evicted()
    requeue(JobFilter(names=(job.name,)), context=context)
    before_ms = job.priority_ms
    job.refresh_from_db()
    assert (job.state, job.failures, job.parked_reason) == (JobState.WAITING, 0, "")
    assert job.priority_ms == before_ms - FAILURES_MAX * FAILURE_DELAY_MS
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}


def test_requeueing_twice_changes_nothing_the_second_time(service: Service, evicted, context: ActionContext) -> None:
    job = evicted()
    wanted = JobFilter(names=(job.name,))
    requeue(wanted, context=context)
    before = service.dump()
    again = requeue(wanted, context=context)
    assert (again.changed, again.command_indexes) == ((), ())
    assert again.left == ((job.name, "no parked job of this name fits the filter"),)
    assert service.dump() == before


@pytest.mark.parametrize(
    "wanted",
    [
        JobFilter(error_class="Truncated"),
        JobFilter(error_class="Truncated", level=0, tenant="", lane="profiles", shard=2),
        JobFilter(shard=2, kind=ParkedKind.EVICTED),
    ],
)
def test_a_filter_requeues_only_what_it_fits(
    service: Service, evicted, context: ActionContext, wanted: JobFilter
) -> None:
    evicted(shard=1, reason=REASON)
    job = evicted(shard=2, reason=OTHER)
    assert requeue(wanted, context=context).changed == (job.name,)
    assert count_by_error_class(parked_jobs()) == {"ChecksumMismatch": 1}


def test_an_expired_lease_is_an_error_class_too(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    worker = service.worker()
    for _ in range(4):
        worker.take()
        service.clock.advance(15.001)
    while not parked_jobs().exists():
        worker.poll(capacity=1)
        service.clock.advance(15.001)
    assert count_by_error_class(parked_jobs()) == {"LeaseExpired": 1}
    assert len(requeue(JobFilter(error_class="LeaseExpired"), context=context).changed) == 1


def test_an_empty_filter_is_refused(service: Service, evicted, context: ActionContext) -> None:
    evicted()
    for act in (requeue, cancel, return_job_blocks, reset_failures, unpin):
        with pytest.raises(FilterEmpty):
            act(JobFilter(), context=context)
    assert parked_jobs().count() == 1


@pytest.mark.parametrize("act", [requeue, return_job_blocks, reset_failures])
def test_a_dry_run_names_the_same_jobs_and_changes_nothing(
    service: Service, evicted, context: ActionContext, act
) -> None:
    evicted(shard=1)
    evicted(shard=2)
    before, audited = service.dump(), AuditEntry.objects.count()
    dry = act(ALL, context=replace(context, is_dry_run=True))
    assert (service.dump(), AuditEntry.objects.count()) == (before, audited)
    real = act(ALL, context=context)
    assert (dry.changed, dry.left) == (real.changed, real.left)
    assert len(real.changed) == 2


def test_one_order_is_one_command_and_one_audit_entry(service: Service, evicted, context: ActionContext) -> None:
    evicted(shard=1)
    evicted(shard=2)
    outcome = requeue(ALL, context=context)
    [index] = outcome.command_indexes
    command, audit = Command.objects.get(index=index), AuditEntry.objects.get(action="requeue")
    assert (command.kind, command.actor, LogHead.objects.get().last_index) == ("operate", "operator", index)
    assert command.change_set["jobs"] == list(outcome.changed)
    assert (audit.actor, audit.detail["command"], audit.detail["why"]) == ("operator", index, "it was the disk")


def test_many_jobs_are_changed_in_several_commands(
    service: Service, evicted, context: ActionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webadmin.schedule.services.operation.JOBS_PER_COMMAND", 2)
    for shard in range(1, 4):
        evicted(shard=shard)
    outcome = requeue(ALL, context=context)
    assert (len(outcome.changed), len(outcome.command_indexes)) == (3, 2)


@pytest.mark.row("invariant-11")
def test_requeueing_never_overfills_the_queue(
    service: Service, evicted, context: ActionContext, dry: ActionContext
) -> None:
    jobs = [evicted(shard=shard) for shard in (1, 2, 3)]
    change_limit(name=LimitName.QUEUE_MAX, scope=EVERYTHING, value=2, context=context)
    preview = requeue(ALL, context=dry)
    outcome = requeue(ALL, context=context)
    assert outcome.changed == preview.changed == (jobs[0].name, jobs[1].name)
    assert outcome.left == preview.left == ((jobs[2].name, "the queue is full: raise its limit, or wait"),)


def test_on_a_newer_build_only_the_build_that_failed_gets_the_job_no_more(
    service: Service, evicted, context: ActionContext
) -> None:
    job = evicted()
    requeue(ALL, context=context, newer_build_only=True)
    old, new = service.worker(), service.worker()
    assert old.take() == []
    new.build = "newer"
    assert [spec.job for spec in new.take()] == [job.name]


def test_a_build_that_is_older_than_the_one_that_failed_is_not_a_newer_one(
    service: Service, evicted, context: ActionContext
) -> None:
    job = evicted()
    Attempt.objects.filter(job=job).update(build="0.9.0")
    requeue(ALL, context=context, newer_build_only=True)
    worker = service.worker()
    for build in ("0.9.0", "0.8.5", "0.9.0rc1"):
        worker.build = build
        assert worker.take() == [], build
    worker.build = "0.10.0"
    assert [spec.job for spec in worker.take()] == [job.name]


def test_requeueing_without_that_wish_opens_the_job_to_every_build(
    service: Service, evicted, context: ActionContext
) -> None:
    job = evicted()
    requeue(ALL, context=context, newer_build_only=True)
    cancel(JobFilter(names=(job.name,)), context=context)
    requeue(ALL, context=context)
    assert [spec.job for spec in service.worker().take()] == [job.name]


def test_a_cancelled_job_is_parked_with_its_blocks_and_its_worker_stops(
    service: Service, context: ActionContext
) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    assert cancel(JobFilter(names=(spec.job,)), context=context).changed == (spec.job,)
    assert worker.poll(worker.running(spec.job), capacity=0).leases == ()
    worker.poll(worker.success(spec.job), capacity=0)
    job = Job.objects.get()
    assert (job.state, job.parked_kind, job.parked_reason) == (
        JobState.PARKED,
        ParkedKind.DEFERRED,
        "parked by operator: it was the disk",
    )
    assert Attempt.objects.get().outcome == AttemptOutcome.REVOKED
    assert (service.states(), job.failures) == ({"owned": 20}, 0)


def test_a_requeued_deferred_job_is_the_same_job_without_a_failure(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    cancel(ALL, context=context)
    requeue(JobFilter(kind=ParkedKind.DEFERRED), context=context)
    [again] = worker.take()
    assert (again.job, Job.objects.get().failures) == (spec.job, 0)
    assert again.fence != spec.fence


def test_blocks_given_back_are_planned_anew(service: Service, evicted, context: ActionContext) -> None:
    job = evicted(count=5)
    outcome = return_job_blocks(ALL, context=context)
    job.refresh_from_db()
    assert (outcome.changed, job.state) == ((job.name,), JobState.DISSOLVED)
    assert service.states() == {"queued": 5}
    [spec] = service.worker().take()
    assert len(spec.sources) == 5
    assert Job.objects.filter(name=job.name).count() == 2, "the same blocks make a job of the same name"


def test_a_late_success_of_a_dissolved_job_is_ignored(service: Service, context: ActionContext) -> None:
    service.add_segments(20)
    worker = service.worker()
    [spec] = worker.take()
    cancel(ALL, context=context)
    return_job_blocks(ALL, context=context)
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"queued": 20}
    other = service.worker()
    [again] = other.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert Job.objects.get(state=JobState.LEASED).token == again.fence


def test_only_the_pinned_worker_gets_a_pinned_job(service: Service, evicted, context: ActionContext) -> None:
    job = evicted()
    chosen, other = service.worker("chosen"), service.worker("other")
    chosen.poll(capacity=0)
    pin(ALL, worker="chosen", context=context)
    requeue(ALL, context=context)
    assert other.take() == []
    assert [spec.job for spec in chosen.take()] == [job.name]
    unpin(ALL, context=context)
    assert not JobPin.objects.exists()


def test_jobs_cannot_be_pinned_to_an_unknown_worker(service: Service, evicted, context: ActionContext) -> None:
    evicted()
    with pytest.raises(NotFound):
        pin(ALL, worker="nobody", context=context)


def test_failures_are_reset_without_moving_the_job(service: Service, evicted, context: ActionContext) -> None:
    job = evicted()
    reset_failures(JobFilter(names=(job.name,)), context=context)
    job.refresh_from_db()
    assert (job.state, job.failures) == (JobState.PARKED, 0)


def test_requeueing_with_its_failures_leaves_a_job_one_run_at_the_limit(
    service: Service, evicted, context: ActionContext
) -> None:
    job = evicted()
    requeue(ALL, context=context, keep_failures=True)
    worker = service.worker()
    worker.take()
    worker.poll(worker.released(job.name, REASON), capacity=0)
    assert Job.objects.get().state == JobState.PARKED
    assert Attempt.objects.count() == 5


def test_a_parked_jobs_blocks_stay_live(service: Service, evicted: Callable[..., Job], context: ActionContext) -> None:
    evicted()
    assert Block.objects.live().count() == 20
