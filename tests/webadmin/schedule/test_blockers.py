"""Jobs that no worker may take, and caps: they delay no other jobs, and are explained."""

from __future__ import annotations

import pytest
from django.db.models import F

from engine.schedule.limits import LimitName, Scope, ScopeKind
from engine.schedule.pauses import PauseMode
from tests.webadmin.schedule.test_fair_polls import add_level_one, limit
from tests.webadmin.service import FakeWorker, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles import suspects
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block
from webadmin.progress.facts import read_standstill
from webadmin.progress.health import judge
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Job, Limits
from webadmin.schedule.operation_models import JobPin
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.adjust_jobs import pin
from webadmin.schedule.services.pause_schedule import pause

CONTEXT = ActionContext(actor="user:jo", why="test")


@pytest.fixture
def full_of_pinned(service: Service) -> FakeWorker:
    """Fill the schedule with jobs for a worker that has gone, and return another one."""
    gone, other = service.worker("gone"), service.worker("other")
    for shard in (1, 2, 3):
        service.add_segments(20, shard=shard)
    jobs = [spec.job for spec in gone.take(3)]
    gone.poll(*(gone.released(job) for job in jobs), capacity=0)
    pin(JobFilter(names=tuple(jobs)), worker="gone", context=CONTEXT)
    Limits.objects.update(queue_max=3)
    for _ in range(6):  # until its lease has expired
        service.clock.advance(14)
        other.poll(capacity=0)
    return other


def test_jobs_pinned_to_an_absent_worker_hold_no_place(service: Service, full_of_pinned: FakeWorker) -> None:
    assert set(Job.objects.values_list("state", flat=True)) == {"waiting"}
    service.add_segments(80, shard=4)
    taken = [spec.shard for _ in range(2) for spec in full_of_pinned.take(2)]
    assert taken == [4, 4, 4], "as many as the limit allows beside those"
    check_invariants()


def test_the_explanation_names_the_absent_worker(service: Service, full_of_pinned: FakeWorker) -> None:
    [told, *_] = explain_name(Job.objects.first().name)
    assert "worker gone, which does not poll" in told.sentence
    codes = [blocker.code for blocker in judge(read_standstill(), stalled_after_seconds=60).blockers]
    assert "pinned" in codes
    full_of_pinned.build = "0.2.0"
    full_of_pinned.poll(capacity=0)
    JobPin.objects.update(kind=JobPin.Kind.NEWER_THAN, value="7.0")
    assert "a newer build than 7.0, and none polls" in explain_name(Job.objects.first().name)[0].sentence
    JobPin.objects.update(value="0.0.1")
    assert "newer build" not in explain_name(Job.objects.first().name)[0].sentence


def test_jobs_of_a_paused_level_hold_no_place(service: Service) -> None:
    worker = service.worker()
    service.add_segments(20)
    [spec] = worker.take()
    worker.poll(worker.released(spec.job), capacity=0)
    Limits.objects.update(queue_max=1)
    pause(scope=Scope(ScopeKind.LEVEL, "0"), mode=PauseMode.PAUSE, context=CONTEXT)
    LevelPolicy.objects.filter(level=1).update(blocks_max=2)
    add_level_one(service, "acme", 4)
    assert [len(worker.take(1)), len(worker.take(1))] == [1, 0], "the limit holds for jobs that somebody may take"
    check_invariants()


def test_a_tenant_at_its_cap_is_named_for_blocks_jobs_and_by_health(service: Service) -> None:
    LevelPolicy.objects.filter(level=1).update(blocks_max=2)
    add_level_one(service, "acme", 4)
    limit(LimitName.RUNNING_MAX, ScopeKind.TENANT, "acme", 1)
    worker = service.worker()
    [spec] = worker.take(4)
    waiting = next(block for block in blocks_of("acme") if block not in {source.id for source in spec.sources})
    [told] = explain_name(waiting)
    assert "tenant acme runs 1 of the 1 jobs it may" in told.sentence
    found = judge(read_standstill(), stalled_after_seconds=60).blockers
    assert [blocker.text for blocker in found if blocker.code == "capped"] == [
        "tenant acme runs 1 of the 1 jobs it may"
    ]
    worker.poll(worker.success(spec.job), capacity=0)
    assert "jobs it may" not in explain_name(waiting)[0].sentence


def blocks_of(tenant: str) -> list[str]:
    return list(Block.objects.filter(tenant__name=tenant).order_by("id").values_list("ulid", flat=True))


def test_isolation_looks_at_others_when_there_are_more_than_one_round_takes(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = service.worker()
    for shard in range(1, 6):
        service.add_segments(20, shard=shard)
    jobs = [spec.job for spec in worker.take(5)]
    worker.poll(*(worker.released(job) for job in jobs), capacity=0)
    Job.objects.update(state="parked", parked_reason="it failed", failures=F("failures") + 3)
    monkeypatch.setattr(suspects, "LARGE_JOBS_MAX", 2)
    seen: set[str] = set()
    for _ in range(3):
        seen |= {job.name for job in suspects.evicted_jobs()}
        service.clock.advance(suspects.ROUND_MS / 1000)
    assert seen == set(jobs)
