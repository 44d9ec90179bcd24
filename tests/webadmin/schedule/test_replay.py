"""The log alone leads to the state of the tables (invariant 16), with entries of this format and of the one before."""

from __future__ import annotations

import copy
from random import Random

import pytest

from engine.schedule.errors import EntryUnknown
from engine.schedule.model import FORMAT_VERSION
from tests.block_factory import block_meta, ulid
from tests.log_replay.replay import apply_entry
from tests.log_replay.state import ReplayedState
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.level_models import LevelPolicy
from webadmin.lanes.profiles.models import Block
from webadmin.lanes.profiles.services.delete_requests import DeletionTarget, request_deletion
from webadmin.lanes.profiles.services.retain import apply_retention
from webadmin.lanes.profiles.services.retention_rules import set_retention
from webadmin.lanes.profiles.services.rewrite_masked import rewrite_masked
from webadmin.schedule.fairness_models import TenantShare
from webadmin.schedule.models import Command, Job, Limits
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.return_job_blocks import return_job_blocks

Entry = dict[str, object]

DAY_MS = 86_400_000
CONTEXT = ActionContext(actor="test", why="the customer asked")


def log() -> list[Entry]:
    rows = Command.objects.order_by("index").values("index", "kind", "format_version", "change_set")
    return list(rows)


def replayed(entries: list[Entry], times: int = 1) -> ReplayedState:
    state = ReplayedState()
    for entry in entries:
        for _ in range(times):
            apply_entry(state, **copy.deepcopy(entry))
    return state


def live_through(service: Service, seed: int) -> None:
    """Let three workers merge, fail, forget and come back, so that every kind of change is in the log."""
    LevelPolicy.objects.update(blocks_max=2, age_seconds=20)
    Limits.objects.update(failures_max=1, queue_max=6)
    random, crew = Random(seed), [service.worker() for _ in range(3)]
    for _ in range(60):
        if random.random() < 0.3:
            tenant = random.choice(["acme", "beta"])
            service.add_segments(random.randint(1, 3), shard=random.randint(1, 2), datasets=[(tenant, "web")])
        worker = random.choice(crew)
        updates = []
        for job in list(worker.held):
            chance = random.random()
            if chance < 0.5:
                updates.append(worker.success(job))
            elif chance < 0.7:
                updates.append(worker.released(job, random.choice([None, REASON])))
            elif chance < 0.8:
                updates.append(worker.running(job))
                continue
            del worker.held[job]
        worker.poll(*updates, capacity=random.randint(0, 3))
        service.clock.advance(random.choice([0.1, 5, 14]))
    check_invariants()


def assert_equal_to_tables(state: ReplayedState) -> None:
    rows = Block.objects.values_list("shard", "ulid", "tenant__name", "level", "state", "owner_job__name")
    assert {(shard, ulid): (tenant or "", level, found) for shard, ulid, tenant, level, found, _ in rows} == {
        key: (block.tenant, block.level, block.state) for key, block in state.blocks.items()
    }
    owners = {(shard, ulid): owner for shard, ulid, _, _, found, owner in rows if found == "owned"}
    assert owners == {key: block.owner for key, block in state.blocks.items() if block.state == "owned"}
    last = {job.name: job for job in Job.objects.order_by("id")}
    assert {name: (job.state, job.token, job.failures, job.parked_reason) for name, job in last.items()} == {
        name: (job.state, job.token, job.failures, job.parked_reason[:500]) for name, job in state.jobs.items()
    }
    paid = {key: time for key, time in state.tenant_times.items() if time}
    shares = {(row.lane, row.tenant): row.virtual_time for row in TenantShare.objects.all()}
    assert all(shares[key] >= time for key, time in paid.items()), "waking up may add, nothing takes away"


@pytest.mark.row("invariant-16")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replaying_the_log_from_empty_gives_the_tables(service: Service, seed: int) -> None:
    live_through(service, seed)
    entries = log()
    assert {entry["kind"] for entry in entries} >= {"add_blocks", "update_plan"}
    plans = [entry["change_set"] for entry in entries if entry["kind"] == "update_plan"]
    assert all(any(plan[part] for plan in plans) for part in ("completed", "returned", "created"))
    state = replayed(entries)
    assert_equal_to_tables(state)
    assert replayed(entries, times=2) == state, "applying an entry twice is applying it once"


@pytest.mark.row("invariant-16")
def test_expired_and_rewritten_blocks_are_replayed(service: Service) -> None:
    made = ((tenant, services) for tenant in ("acme", "brief") for services in (["web"], ["api", "web"]))
    for number, (tenant, services) in enumerate(made):
        meta = block_meta(
            ulid(service.clock.now_ms - 2 * DAY_MS, number),
            tenant=tenant,
            level=3,
            datasets=[(tenant, name) for name in services],
            with_index=True,
        )
        service.add(meta, any_age=True)
    for number in range(20):
        both = [("acme", "web"), ("brief", "web")] if number % 2 else [("brief", "web")]
        meta = block_meta(ulid(service.clock.now_ms - 2 * DAY_MS, 100 + number), datasets=both)
        service.add(meta, any_age=True)
    worker = service.worker()
    [merge] = worker.take()
    worker.poll(worker.released(merge.job), capacity=0)
    set_retention(tenant="brief", keep_days=1, context=CONTEXT)  # later: what is past retention is not merged first
    apply_retention(context=CONTEXT)
    request_deletion(DeletionTarget(tenant="acme", service="api"), context=CONTEXT)
    [rewrite] = rewrite_masked(context=CONTEXT).jobs
    specs = {spec.job: spec for spec in worker.take(2)}
    assert specs.keys() == {merge.job, rewrite}
    assert len(specs[merge.job].sources) == 10
    worker.poll(*map(worker.success, specs), capacity=0)
    request_deletion(DeletionTarget(tenant="acme", service="web"), context=CONTEXT)
    rewrite_masked(context=CONTEXT)
    check_invariants()
    entries = log()
    actions = {entry["change_set"].get("action") for entry in entries}
    assert actions >= {"retention", "request_deletion", "rewrite_blocks", "drop_deleted"}
    assert_equal_to_tables(replayed(entries))
    assert replayed(entries, times=2) == replayed(entries)


@pytest.mark.row("invariant-16")
def test_a_rewrite_that_returned_its_block_leaves_it_final(service: Service) -> None:
    services = [("acme", "web"), ("acme", "api")]
    service.add(block_meta(ulid(service.clock.now_ms), tenant="acme", level=3, datasets=services, with_index=True))
    request_deletion(DeletionTarget(tenant="acme", service="api"), context=CONTEXT)
    [rewrite] = rewrite_masked(context=CONTEXT).jobs
    cancel(JobFilter(names=(rewrite,)), context=CONTEXT)
    return_job_blocks(JobFilter(names=(rewrite,)), context=CONTEXT)
    state = replayed(log())
    assert_equal_to_tables(state)
    assert [block.state for block in state.blocks.values()] == ["final"]


def test_entries_of_version_2_apply(service: Service) -> None:
    live_through(service, 4)
    entries = log()
    assert not any("source_shards" in c for e in entries for c in e["change_set"].get("created", ()))
    assert_equal_to_tables(replayed([entry | {"format_version": 2} for entry in entries]))


def test_entries_of_version_1_apply(service: Service) -> None:
    live_through(service, 4)
    old = log()
    for entry in old:
        entry["format_version"] = 1
        if entry["kind"] == "update_plan":
            del entry["change_set"]["tenants"], entry["change_set"]["lanes"]
    assert_equal_to_tables(replayed(old))


@pytest.mark.parametrize(
    ("kind", "version"), [("add_blocks", FORMAT_VERSION + 1), ("add_blocks", 0), ("unheard_of", 1)]
)
def test_an_entry_of_another_kind_or_format_is_refused(kind: str, version: int) -> None:
    with pytest.raises(EntryUnknown, match="entry 7"):
        apply_entry(ReplayedState(), index=7, kind=kind, format_version=version, change_set={"added": []})
