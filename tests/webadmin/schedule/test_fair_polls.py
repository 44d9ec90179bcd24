"""Polls share the fleet between tenants, obey caps, pauses and tenants' own policies, and charge no outage to jobs."""

from __future__ import annotations

from collections import Counter

import pytest

from engine.schedule.limits import LimitName, ScopeKind
from engine.schedule.pauses import PauseMode
from tests.block_factory import block_meta, ulid
from tests.webadmin.service import Service, check_invariants
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.planning.level_policies import LevelPolicies
from webadmin.lanes.profiles.planning.level_queues import resettle_queues
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.models import Job
from webadmin.schedule.operation_models import LimitChange, Pause


def add_level_one(service: Service, tenant: str, count: int, *, shard: int = 1, tag: int = 0) -> None:
    """Register blocks of level 1 of one tenant, as merges of segments would have left them."""
    ids = [ulid(service.clock.now_ms, int.from_bytes(tenant.encode()) << 20 | tag << 10 | n) for n in range(count)]
    metas = [block_meta(block_id, shard=shard, tenant=tenant, level=1, datasets=[(tenant, "web")]) for block_id in ids]
    assert len(service.add(*metas).accepted) == count


def limit(name: LimitName, kind: ScopeKind, scope: str, value: int) -> None:
    LimitChange.objects.create(
        name=name, scope_kind=kind, scope_value=scope, value=value, set_at_ms=0, command_index=0, actor="t", why="t"
    )


@pytest.fixture
def small_jobs(db: None) -> None:
    LevelPolicy.objects.update(blocks_max=1, age_seconds=1)


def served(worker, polls: int, capacity: int = 1) -> Counter[str]:
    return Counter(spec.tenant for _ in range(polls) for spec in worker.take(capacity))


@pytest.mark.usefixtures("small_jobs")
def test_tenants_share_polls_by_weight_however_long_one_backlog_is(service: Service) -> None:
    add_level_one(service, "large", 40)
    add_level_one(service, "small", 8)
    limit(LimitName.WEIGHT, ScopeKind.TENANT, "small", 3)
    assert served(service.worker(), 8) == {"large": 2, "small": 6}
    check_invariants()


@pytest.mark.usefixtures("small_jobs")
def test_a_tenant_that_was_idle_gets_no_credit_for_it(service: Service) -> None:
    add_level_one(service, "idle", 1)
    add_level_one(service, "busy", 30)
    worker = service.worker()
    assert served(worker, 12)["idle"] == 1
    assert not TenantShare.objects.get(tenant="idle").is_awake
    add_level_one(service, "idle", 10, tag=1)
    assert served(worker, 8) == {"idle": 4, "busy": 4}


@pytest.mark.usefixtures("small_jobs")
def test_a_cap_holds_and_leaves_the_capacity_to_others(service: Service) -> None:
    add_level_one(service, "capped", 9)
    add_level_one(service, "other", 3)
    limit(LimitName.RUNNING_MAX, ScopeKind.TENANT, "capped", 2)
    worker = service.worker()
    assert served(worker, 2, capacity=4) == {"capped": 2, "other": 3}
    done = [worker.success(job) for job in list(worker.held) if "capped" in job]
    assert Counter(given.spec["tenant"] for given in worker.poll(*done, capacity=4).assignments) == {"capped": 2}


@pytest.mark.usefixtures("small_jobs")
@pytest.mark.parametrize(("name", "value"), [(LimitName.RUNNING_BYTES_MAX, 1), (LimitName.RUNNING_BYTES_MAX, 600)])
def test_a_cost_cap_leaves_single_places_to_others(service: Service, name: LimitName, value: int) -> None:
    """Polls of capacity 1 look at the neediest tenant: one that runs as much as it may is not that."""
    add_level_one(service, "capped", 9)
    add_level_one(service, "other", 3)
    assert set(Block.objects.values_list("size_bytes", flat=True)) == {400}
    limit(name, ScopeKind.TENANT, "capped", value)
    assert served(service.worker(), 6) == {"capped": 1, "other": 3}


@pytest.mark.usefixtures("small_jobs")
@pytest.mark.parametrize("running_max", [0, 1])
def test_jobs_put_back_do_not_hide_those_of_other_tenants(service: Service, running_max: int) -> None:
    add_level_one(service, "noisy", 9)
    worker = service.worker()
    assert served(worker, 1, capacity=9) == {"noisy": 9}
    add_level_one(service, "quiet", 2)
    assert served(worker, 1, capacity=2) == {"quiet": 2}
    if running_max:
        limit(LimitName.RUNNING_MAX, ScopeKind.TENANT, "noisy", running_max)
    worker.poll(*[worker.released(job) for job in list(worker.held)], capacity=0)
    assert served(worker, 6)["quiet"] == 2


def test_a_block_too_large_for_a_job_waits_without_taking_the_places_of_others(service: Service) -> None:
    LevelPolicy.objects.filter(level=1).update(blocks_max=3, age_seconds=3600, bytes_max=300)
    add_level_one(service, "alone", 1)
    worker = service.worker()
    assert served(worker, 2) == {}
    assert LevelQueue.objects.get(tenant="alone").ready_at_ms > service.clock.now_ms
    add_level_one(service, "others", 2)
    assert served(worker, 2) == {"others": 1}


@pytest.mark.usefixtures("small_jobs")
@pytest.mark.parametrize(
    ("kind", "scope"), [(ScopeKind.TENANT, "held"), (ScopeKind.LEVEL, "1"), (ScopeKind.GLOBAL, "")]
)
def test_paused_work_waits_and_resumes(service: Service, kind: ScopeKind, scope: str) -> None:
    add_level_one(service, "held", 3)
    worker = service.worker()
    assert served(worker, 1) == {"held": 1}
    pause = Pause.objects.create(
        scope_kind=kind, scope_value=scope, mode=PauseMode.PAUSE, since_ms=0, command_index=0, actor="t", why="t"
    )
    worker.poll(worker.released(next(iter(worker.held))), capacity=0)
    assert served(worker, 2) == {}
    Pause.objects.filter(id=pause.id).update(ended_at_ms=1, ended_by="t")
    assert served(worker, 3) == {"held": 3}


def test_a_draining_tenant_finishes_its_jobs_and_gets_no_new_ones(service: Service) -> None:
    LevelPolicy.objects.update(blocks_max=1)
    add_level_one(service, "held", 2)
    worker = service.worker()
    [first] = worker.take()
    Pause.objects.create(
        scope_kind=ScopeKind.TENANT,
        scope_value="held",
        mode=PauseMode.DRAIN,
        since_ms=0,
        command_index=0,
        actor="t",
        why="t",
    )
    worker.poll(worker.released(first.job), capacity=0)
    assert [spec.job for spec in worker.take(4)] == [first.job]


def test_a_tenants_own_policy_wins_over_everybodys(service: Service) -> None:
    LevelPolicy.objects.create(lane="profiles", tenant="own", level=1, blocks_max=2, age_seconds=9, spread_seconds=9)
    add_level_one(service, "own", 5)
    add_level_one(service, "other", 5)
    specs = service.worker().take(8)
    assert [(spec.tenant, len(spec.sources)) for spec in specs] == [("own", 2), ("own", 2)]


def test_a_changed_policy_changes_when_waiting_queues_are_ready(service: Service) -> None:
    add_level_one(service, "acme", 3)
    worker = service.worker()
    assert worker.take() == []
    LevelPolicy.objects.filter(level=1).update(blocks_max=3)
    assert resettle_queues(LevelQueue.objects.filter(level=1), LevelPolicies()) == 1
    [spec] = worker.take()
    assert len(spec.sources) == 3


@pytest.mark.row("S34")
def test_endless_segments_do_not_starve_higher_levels(service: Service) -> None:
    LevelPolicy.objects.filter(level=0).update(blocks_max=1)
    LevelPolicy.objects.filter(level=1).update(blocks_max=1)
    service.add_segments(60)
    worker = service.worker()
    assert served(worker, 2) == {"": 2}
    add_level_one(service, "acme", 1)
    assert served(worker, 2)["acme"] == 1


@pytest.mark.parametrize("backlog", [8, 60])
def test_a_small_tenant_and_a_higher_level_wait_a_number_of_polls_that_the_backlog_does_not_change(
    service: Service, backlog: int
) -> None:
    """A lane of segments that never runs dry, one tenant with much, one with a single block, a block of level 2."""
    LevelPolicy.objects.update(blocks_max=1)
    service.add_segments(backlog)
    add_level_one(service, "large", backlog)
    worker = service.worker()
    served(worker, 2)
    add_level_one(service, "small", 1)
    high = block_meta(ulid(service.clock.now_ms, 7), tenant="large", level=2, datasets=[("large", "web")])
    assert len(service.add(high).accepted) == 1
    found: dict[str, int] = {}
    for number in range(1, 13):
        service.add_segments(3)
        add_level_one(service, "large", 2, tag=number)
        service.clock.advance(14)
        for spec in worker.take():
            found.setdefault("small" if spec.tenant == "small" else f"level {spec.level}", number)
        done = [worker.success(job) for job in worker.held]
        worker.held.clear()
        worker.poll(*done, capacity=0)
    assert found["small"] <= 3
    assert found["level 2"] <= 12


@pytest.mark.parametrize("away_seconds", [31, 3600, 86_400])
def test_an_outage_of_the_service_is_not_charged_to_jobs(service: Service, away_seconds: int) -> None:
    """17.9: leases renewed before the outage at different times all get a whole lease to come back."""
    service.add_segments(20)
    service.add_segments(20, shard=2)
    early, late, vulture = service.worker(), service.worker(), service.worker()
    [first], [second] = early.take(), late.take()
    service.clock.advance(9)
    late.poll(late.running(second.job), capacity=0)
    service.clock.advance(away_seconds)
    assert vulture.take(4) == [], "nobody else gets them before their workers could say a word"
    assert [lease.job for lease in early.poll(early.running(first.job), capacity=0).leases] == [first.job]
    assert [lease.job for lease in late.poll(late.running(second.job), capacity=0).leases] == [second.job]
    assert set(Job.objects.values_list("failures", flat=True)) == {0}


def test_a_worker_that_does_not_come_back_after_an_outage_loses_its_job_one_lease_later(service: Service) -> None:
    service.add_segments(20)
    gone, vulture = service.worker(), service.worker()
    [spec] = gone.take()
    service.clock.advance(3600)
    assert vulture.take() == []
    service.clock.advance(14)
    assert vulture.take() == []
    service.clock.advance(2)
    assert vulture.take() == [], "time stands still at the end of the lease until a command moves it"
    service.clock.advance(1)
    assert [given.job for given in vulture.take()] == [spec.job]
    assert Job.objects.get().failures == 1
