"""Partial batches of several shards through the whole service: one job, one swap, nothing of anybody else touched."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine.formats.profile_block.container.container import BlockReader
from engine.formats.profile_block.container.metadata import decode_metadata
from engine.formats.profile_block.merge_model import Scratch
from engine.lanes.profiles.merge.merge import run
from engine.schedule.limits import LimitName, ScopeKind
from engine.storage import ObjectStore, open_store
from tests.block_factory import ulid
from tests.engine.formats.profile_block.factories import Dataset, write_block
from tests.engine.lanes.profiles.test_merge_sizes import rows_of
from tests.faults.samples import samples_in
from tests.webadmin.schedule.test_fair_polls import add_level_one, limit
from tests.webadmin.schedule.test_replay import assert_equal_to_tables, log, replayed
from tests.webadmin.service import REASON, Service, check_invariants
from webadmin.base.actions.action import ActionContext
from webadmin.lanes.profiles.bucket.lineage_objects import LineageRecord, read_records
from webadmin.lanes.profiles.level_models import LevelPolicy, LevelQueue
from webadmin.lanes.profiles.models import Block, BlockLineage, Tombstone
from webadmin.lanes.profiles.services.change_level_policy import change_level_policy
from webadmin.lanes.profiles.services.record_lineage import record_lineage
from webadmin.progress.log_counts import count_commands
from webadmin.schedule.models import Command, Job
from webadmin.schedule.polls.dry_run import dry_poll
from webadmin.schedule.register import JobFilter
from webadmin.schedule.services.cancel_jobs import cancel
from webadmin.schedule.services.return_job_blocks import return_job_blocks

CONTEXT = ActionContext(actor="user:jo", why="test")
MIB = 1 << 20
ON = {"partial_batch_bytes": 4 * MIB, "partial_batch_age_seconds": 5, "age_seconds": 20}


def consolidate(level: int = 1, tenant: str = "", **numbers: int) -> None:
    change_level_policy(lane="profiles", level=level, tenant=tenant, values=ON | numbers, context=CONTEXT)


def leave_partial_batches(service: Service, tenant: str, shards: range) -> None:
    """Let a tenant have one or two blocks in each of these shards."""
    for shard in shards:
        add_level_one(service, tenant, 1 + shard % 2, shard=shard, tag=shard)
        service.clock.advance(0.1)


def wait(service: Service, seconds: int) -> None:
    """Let command time pass."""
    worker = service.worker()
    for _ in range(seconds // 5):
        service.clock.advance(5)
        worker.poll(capacity=0)
        add_level_one(service, "ticks", 1, shard=99, tag=service.clock.now_ms // 1000 % 1000)


def test_one_job_takes_the_partial_batches_of_all_shards_and_swaps_them_at_once(service: Service) -> None:
    consolidate(tenant="acme")
    leave_partial_batches(service, "acme", range(1, 6))
    leave_partial_batches(service, "beta", range(1, 3))
    worker = service.worker()
    assert worker.take(8) == []
    wait(service, 30)
    specs = [spec for spec in worker.take(8) if spec.tenant == "acme"]
    [spec] = specs
    assert [source.shard or spec.shard for source in spec.sources] == [1, 1, 2, 3, 3, 4, 5, 5]
    assert (spec.shard, spec.sources[-1].shard) == (5, None), "the newest source's shard"
    check_invariants()
    worker.poll(worker.success(spec.job), capacity=0)
    job = Job.objects.get(name=spec.job)
    assert job.state == "done"
    sources = Block.objects.filter(ulid__in=[source.id for source in spec.sources])
    assert set(sources.values_list("state", flat=True)) == {"replaced"}
    assert set(Tombstone.objects.filter(job=job).values_list("block_id", flat=True)) == set(
        sources.values_list("id", flat=True)
    ), "each source has the one tombstone that names it"
    [result] = Block.objects.filter(tenant__name="acme", state="queued")
    assert (result.shard, result.level) == (5, 2)
    assert set(BlockLineage.objects.filter(result=result).values_list("source__shard", flat=True)) == {1, 2, 3, 4, 5}
    assert Block.objects.filter(tenant__name="beta").exclude(state__in=["queued", "owned"]).count() == 0
    check_invariants()
    assert_equal_to_tables(replayed(log()))
    assert replayed(log(), times=2) == replayed(log())
    flows = count_commands(Command.objects.order_by("index")).flows
    drained = {key[3]: flow["drained_blocks"] for key, flow in flows.items() if flow["drained_blocks"]}
    assert drained == {1: 2, 2: 1, 3: 2, 4: 1, 5: 2}, "every shard sees what left it"


def test_consolidation_is_off_unless_a_policy_enables_it(service: Service) -> None:
    LevelPolicy.objects.update(age_seconds=20)
    leave_partial_batches(service, "acme", range(1, 4))
    wait(service, 30)
    specs = [spec for spec in service.worker().take(8) if spec.tenant == "acme"]
    assert sorted((spec.shard, len(spec.sources)) for spec in specs) == [(1, 2), (2, 1), (3, 2)]
    assert not any(source.shard for spec in specs for source in spec.sources)


def test_consolidation_costs_two_queries_per_tenant_and_none_where_it_is_off(service: Service) -> None:
    LevelPolicy.objects.update(age_seconds=20)
    leave_partial_batches(service, "acme", range(1, 9))
    wait(service, 30)
    counts = []
    for is_on in (False, True):
        LevelPolicy.objects.update(partial_batch_bytes=4 * MIB * is_on)
        dry_poll(capacity=4)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            dry_poll(capacity=4)
        counts.append(len(queries))
    assert counts[1] - counts[0] <= 4, "two each for acme and for the tenant that lets time pass"


def test_blocks_that_are_given_back_return_to_their_own_shards(service: Service) -> None:
    consolidate(tenant="acme")
    leave_partial_batches(service, "acme", range(1, 4))
    before = sorted(LevelQueue.objects.filter(tenant="acme").values_list("shard", "block_count", "byte_count"))
    wait(service, 30)
    worker = service.worker()
    [name] = [spec.job for spec in worker.take(8) if spec.tenant == "acme"]
    cancel(JobFilter(names=(name,)), context=CONTEXT)
    return_job_blocks(JobFilter(names=(name,)), context=CONTEXT)
    assert sorted(LevelQueue.objects.filter(tenant="acme").values_list("shard", "block_count", "byte_count")) == before
    check_invariants()
    assert_equal_to_tables(replayed(log()))


def test_a_consolidation_that_fails_is_tried_again_with_the_same_shards(service: Service) -> None:
    consolidate(tenant="acme")
    leave_partial_batches(service, "acme", range(1, 4))
    wait(service, 30)
    worker = service.worker()
    [first] = [spec for spec in worker.take(8) if spec.tenant == "acme"]
    worker.poll(worker.released(first.job, REASON), capacity=0)
    [again] = [spec for spec in worker.take(8) if spec.tenant == "acme"]
    assert [source.shard for source in again.sources] == [source.shard for source in first.sources]
    assert again.fence != first.fence
    check_invariants()


def test_a_tenant_at_its_cap_is_not_consolidated_either(service: Service) -> None:
    consolidate(tenant="acme", blocks_max=3)
    leave_partial_batches(service, "acme", range(1, 7))
    limit(LimitName.RUNNING_MAX, ScopeKind.TENANT, "acme", 1)
    wait(service, 30)
    worker = service.worker()
    for _ in range(3):
        assert len([spec for spec in worker.take(8) if spec.tenant == "acme"]) <= 1
        assert Job.objects.filter(tenant="acme", state="leased").count() == 1
    check_invariants()


def test_two_plans_of_the_same_moment_are_the_same(service: Service) -> None:
    consolidate(tenant="acme", blocks_max=4)
    leave_partial_batches(service, "acme", range(1, 9))
    wait(service, 30)
    before = service.dump()
    plans = [dry_poll(capacity=8).to_json()["created"] for _ in range(2)]
    assert plans[0] == plans[1]
    assert any("source_shards" in job for job in plans[0])
    assert service.dump() == before
    worker = service.worker()
    worker.take(8)
    [created] = [c.change_set["created"] for c in Command.objects.filter(kind="update_plan").order_by("-index")[:1]]
    assert created == plans[0]


@pytest.mark.parametrize("capacity", [1, 3])
def test_all_partial_batches_are_merged_in_the_end_with_every_block_in_one_job(service: Service, capacity: int) -> None:
    consolidate(tenant="acme", blocks_max=4)
    leave_partial_batches(service, "acme", range(1, 10))
    total = Block.objects.filter(tenant__name="acme").count()
    wait(service, 30)
    worker = service.worker()
    sources: list[str] = []
    for _ in range(20):
        taken = worker.take(capacity)
        sources += [source.id for spec in taken if spec.tenant == "acme" for source in spec.sources]
        worker.poll(*(worker.success(spec.job) for spec in taken), capacity=0)
        check_invariants()
        service.clock.advance(1)
    assert len(sources) == len(set(sources)) == total


def live_samples(store: ObjectStore):
    """Return every sample of the live blocks, as their objects hold them."""
    rows = Block.objects.live().order_by("id")
    return samples_in(store, [(row.object_key, BlockReader.open(store, row.object_key).meta) for row in rows])


def write_partial_batches(service: Service, store: ObjectStore) -> None:
    """Let acme have a real block of level 1 in three shards, of two services and several series."""
    for number, shard in enumerate((3, 7, 9)):
        block_id = ulid(service.clock.now_ms, number)
        datasets = [Dataset("acme", name, rows_of(name, 50 * number, 8)) for name in ("api", "web")]
        source = write_block(store, datasets, id=block_id, shard=shard, level=1, tenant="acme")
        meta = replace(decode_metadata(source.metadata), size=source.size)
        assert service.add(meta).accepted == (block_id,)
        service.clock.advance(0.1)


@pytest.mark.row("invariant-3")
@pytest.mark.parametrize("cap", [0, 12_000])
def test_a_real_merge_of_three_shards_leaves_every_sample_once(service: Service, tmp_path: Path, cap: int) -> None:
    store = open_store(str(tmp_path / "store"))
    consolidate(tenant="acme")
    LevelPolicy.objects.update(result_bytes_max=cap)
    write_partial_batches(service, store)
    before = live_samples(store)
    worker = service.worker()
    while not (specs := worker.take(4)):
        service.clock.advance(5)
    [spec] = specs
    result = run(spec, store, scratch=Scratch(tmp_path / "scratch"))
    worker.poll(worker.success(spec.job, result), capacity=0)
    assert Job.objects.get().state == "done"
    sizes = list(Block.objects.live().values_list("size_bytes", flat=True))
    assert (len(sizes) == 1) == (cap == 0)
    assert cap == 0 or max(sizes) <= cap
    assert set(Block.objects.live().values_list("shard", "level")) == {(9, 2)}
    assert live_samples(store) == before
    check_invariants()
    record_lineage(store=store)
    merges = [record for _, record in read_records(store) if isinstance(record, LineageRecord) and record.sources]
    assert [sorted(shard for shard, _ in record.sources) for record in merges] == [[3, 7, 9]]
    assert {shard for shard, _ in merges[0].results} == {9}


def test_a_jobs_bytes_are_capped_for_the_tenant_that_has_a_cap(service: Service) -> None:
    LevelPolicy.objects.update(age_seconds=20)
    for tenant in ("acme", "beta"):
        add_level_one(service, tenant, 6)
    size = Block.objects.first().size_bytes
    everybody = LevelPolicy.objects.get(level=1)
    LevelPolicy.objects.create(
        lane="profiles",
        level=1,
        tenant="acme",
        blocks_max=everybody.blocks_max,
        age_seconds=20,
        spread_seconds=everybody.spread_seconds,
        bytes_max=2 * size,
        result_bytes_max=5 << 20,
    )
    wait(service, 30)
    specs = service.worker().take(8)
    assert sorted(len(spec.sources) for spec in specs if spec.tenant == "acme") == [2, 2, 2]
    assert [len(spec.sources) for spec in specs if spec.tenant == "beta"] == [6]
    assert {(spec.tenant, spec.result_bytes_max) for spec in specs} >= {("acme", 5 << 20), ("beta", 0)}
    check_invariants()
