"""Rows of the sheet about completion (section 14.4) under policy ``default``: what a success may and may not do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.lanes.profiles.jobs import ProfileMergeResult, ProfileMergeSpec
from engine.schedule.model import AttemptOutcome, JobState
from tests.block_factory import block_meta, merged, ulid
from tests.webadmin.service import FakeWorker, Service
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelQueue
from webadmin.lanes.profiles.models import Block, BlockLineage, Tombstone
from webadmin.schedule.models import Attempt, Job, Limits
from webadmin.schedule.register import JobFilter, parked_jobs
from webadmin.schedule.services.requeue_jobs import requeue

EMPTY = ProfileMergeResult(sources=(), blocks=())


def lease(service: Service, **options: object) -> tuple[FakeWorker, ProfileMergeSpec]:
    service.add_segments(20, **options)
    worker = service.worker()
    [spec] = worker.take()
    return worker, spec


@pytest.mark.row("R3")
def test_sources_are_replaced_and_the_result_is_queued_for_the_next_level(service: Service) -> None:
    worker, spec = lease(service)
    worker.poll(worker.success(spec.job), capacity=0)
    result = Block.objects.get(level=1)
    assert (result.state, result.queue.level, result.queue.block_count) == ("queued", 1, 1)
    assert Block.objects.live().get() == result
    assert Tombstone.objects.filter(job__name=spec.job, block__level=0).count() == 20
    assert BlockLineage.objects.filter(result=result).count() == 20


@pytest.mark.row("R4", "R17")
def test_a_repeated_success_changes_nothing(service: Service) -> None:
    worker, spec = lease(service)
    report = worker.success(spec.job)
    worker.poll(report, capacity=0)
    before = service.dump()
    assert worker.poll(report, capacity=0).leases == ()
    assert service.dump() == before


@pytest.mark.row("R5")
@pytest.mark.parametrize("keeps_sources", [True, False])
def test_a_success_with_an_empty_result_is_refused(service: Service, keeps_sources: bool) -> None:
    worker, spec = lease(service)
    empty = replace(EMPTY, sources=tuple(source.id for source in spec.sources)) if keeps_sources else EMPTY
    worker.poll(worker.success(spec.job, empty), capacity=0)
    assert service.states() == {"owned": 20}
    assert not Tombstone.objects.exists()
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.reason["error_class"]) == (AttemptOutcome.REFUSED, "ResultRefused")


@pytest.mark.row("R5")
def test_jobs_with_unreadable_sources_are_parked_and_can_be_requeued(service: Service, context: ActionContext) -> None:
    worker, spec = lease(service)
    for _ in range(4):
        worker.poll(worker.success(spec.job, EMPTY), capacity=0)
        worker.take()
    [row] = parked_jobs()
    assert (row.last_error_class, row.source_blocks.count()) == ("ResultRefused", 20)
    requeue(JobFilter(error_class="ResultRefused"), context=context)
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}


@pytest.mark.row("R6")
def test_sources_of_two_partitions_are_replaced_together(service: Service) -> None:
    border_ms = service.clock.now_ms - service.clock.now_ms % (6 * 3_600_000)
    ids = [ulid(border_ms - 10_000 + number * 1000, number) for number in range(20)]
    service.add(*(block_meta(block_id) for block_id in ids))
    assert Block.objects.values("partition_start_ms").distinct().count() == 2
    worker = service.worker()
    [spec] = worker.take()
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"replaced": 20, "queued": 1}


@pytest.mark.row("R7")
def test_a_result_that_merged_fewer_or_other_sources_is_refused_whole(service: Service) -> None:
    worker, spec = lease(service)
    fewer = replace(merged(spec), sources=tuple(source.id for source in spec.sources[1:]))
    worker.poll(worker.success(spec.job, fewer), capacity=0)
    assert service.states() == {"owned": 20}
    assert Attempt.objects.get().outcome == AttemptOutcome.REFUSED


@pytest.mark.row("R7")
def test_a_completion_is_refused_when_a_source_is_no_longer_its_own(service: Service) -> None:
    worker, spec = lease(service)
    queue = LevelQueue.objects.get(level=0)
    lost = Block.objects.order_by("id").first()
    Block.objects.filter(id=lost.id).update(state="queued", queue=queue, owner_job=None)
    worker.poll(worker.success(spec.job), capacity=0)
    assert service.states() == {"owned": 19, "queued": 1}
    Block.objects.filter(id=lost.id).update(state="owned", queue=None, owner_job=Job.objects.get())


@pytest.mark.row("R8", "R9")
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_known_block_is_never_added_again(service: Service, is_replaced: bool) -> None:
    ids = service.add_segments(20)
    metas = [block_meta(block_id) for block_id in ids]
    worker = service.worker()
    [spec] = worker.take()
    if is_replaced:
        worker.poll(worker.success(spec.job), capacity=0)
    before = service.dump()
    outcome = service.add(*metas)
    assert (outcome.accepted, set(outcome.duplicates)) == ((), set(ids))
    assert service.dump() == before


@pytest.mark.row("R18")
def test_three_tenants_get_a_block_each(service: Service) -> None:
    tenants = ["a", "b", "c"]
    worker, spec = lease(service, datasets=[(tenant, "web") for tenant in tenants])
    worker.poll(worker.success(spec.job), capacity=0)
    queues = LevelQueue.objects.filter(level=1, block_count=1)
    assert sorted(queues.values_list("tenant", flat=True)) == tenants
    assert set(Tombstone.objects.values_list("block__tenant", flat=True)) == {None}


@pytest.mark.row("S25")
def test_a_job_at_its_limit_is_completed_by_its_owner(service: Service) -> None:
    worker, spec = lease(service)
    Job.objects.update(failures=3)
    worker.poll(worker.success(spec.job), capacity=0)
    assert Job.objects.get().state == JobState.DONE


@pytest.mark.row("S26")
def test_without_a_failure_limit_a_job_is_retried_for_ever(service: Service) -> None:
    Limits.objects.update(failures_max=0)
    worker, _ = lease(service)
    Job.objects.update(failures=1000)
    service.clock.advance(15)
    assert worker.take() == [], "a lease is over only when its end is past"
    service.clock.advance(0.001)
    assert len(worker.take()) == 1
    assert Job.objects.get().failures == 1001
