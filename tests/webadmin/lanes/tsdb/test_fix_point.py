"""A bucket is adopted, its blocks are found, merged by interval and replaced, until nothing is left to do."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from engine.lanes.tsdb.buckets.bucket_index import read_index
from engine.storage import ObjectStore, cached_store
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, has, origins, put_block, visible
from tests.webadmin.service import Service
from webadmin.base.database import dialect
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.progress import tenant_progress
from webadmin.lanes.tsdb.services import plan_tenants, rounds
from webadmin.lanes.tsdb.services.plan_tenants import due_tenants, plan_tenant
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.log_position import LogPosition
from webadmin.schedule.models import Job, Limits, LogHead

START_MS = 1_600_000_000_000 - 1_600_000_000_000 % (24 * HOUR_MS)


def run_rounds(store: ObjectStore, node: FakeNode, count: int = 10) -> int:
    """Do what control tasks and a node do until nothing happens any more; return the number of jobs."""
    jobs = 0
    for _ in range(count):
        rounds.scan_buckets(lambda url: store)
        rounds.plan_due(lambda url: store)
        done = node.work_off()
        written = rounds.write_outboxes(lambda url: store)
        jobs += done
        if not done and not written.written:
            return jobs
    raise AssertionError("no fix-point")


def fill_day(store: ObjectStore, folder: str = "acme/", replicas: int = 3) -> set[str]:
    """Put a day of 2 h blocks, each from several replicas, and one block of the day after; return the day's ids."""
    day = set()
    for slot in range(12):
        for replica in range(replicas):
            ulid = block_id(slot * replicas + replica)
            put_block(store, folder, ulid, START_MS + slot * 2 * HOUR_MS, START_MS + (slot + 1) * 2 * HOUR_MS)
            day.add(ulid)
    return day


def test_a_day_of_replicas_becomes_one_block(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    day = fill_day(store)
    jobs = run_rounds(store, node)
    left = visible(store, "acme/")
    assert len(left) == 1
    assert origins(store, "acme/", left) == day
    assert jobs == 12 + 2 + 1
    tenant = BucketTenant.objects.get()
    assert (tenant.waiting, tenant.compactions, tenant.refusal) == (0, 0, "")
    assert set(Group.objects.values_list("state", flat=True)) == {GroupState.DONE}
    assert LogHead.objects.get().live_job_count == 0
    index = read_index(store, layout_of(bucket), "acme/")
    assert index is not None
    assert set(index.blocks) - set(index.deletion_times_s) == left
    assert not OutboxStep.objects.filter(done_at_ms=None).exists()


def test_only_what_comes_after_the_adoption_waits_for_others_to_follow(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    Bucket.objects.update(consistency_delay_seconds=1500)
    fill_day(store, replicas=2)
    assert run_rounds(store, node) == 12 + 2 + 1
    late = block_id(1000)
    put_block(store, "acme/", late, START_MS, START_MS + 2 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    row = Block.objects.get(ulid=late)
    assert row.uploaded_at_ms
    Block.objects.filter(id=row.id).update(uploaded_at_ms=dialect.clock_ms())  # that of the database is not the files'
    assert run_rounds(store, node) == 0
    [state] = explain_blocks(late)
    assert "more blocks may follow" in state.sentence
    [told] = tenant_progress()
    assert told.is_done
    assert told.rechecked_at_ms is not None
    Block.objects.filter(ulid=late).update(uploaded_at_ms=1)
    BucketTenant.objects.update(plan_at_ms=0)
    assert run_rounds(store, node) == 1


def test_replaced_blocks_go_when_their_delay_is_over(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    day = fill_day(store)
    run_rounds(store, node)
    rounds.clean_buckets(lambda url: store)
    assert all(has(store, f"acme/{ulid}/index") for ulid in day)
    Bucket.objects.update(deletion_delay_seconds=0)
    rounds.clean_buckets(lambda url: store)
    assert not any(has(store, f"acme/{ulid}/index") for ulid in day)
    assert Block.objects.filter(state=BlockState.GONE, ulid__in=day).count() == len(day)
    run_rounds(store, node)
    assert len(visible(store, "acme/")) == 1
    assert not Job.objects.exclude(state="done").exists()


def test_nothing_is_deleted_while_the_log_is_behind_the_bucket(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    day = fill_day(store)
    run_rounds(store, node)
    put_block(store, "acme/", block_id(1001), START_MS, START_MS + 2 * HOUR_MS, has_meta=False)
    rounds.scan_buckets(lambda url: store)
    Bucket.objects.update(deletion_delay_seconds=0, partial_age_seconds=0)
    service.clock.now_ms += 100_000_000_000  # behind the times that the store gives its objects
    lost = LogPosition(epoch="f" * 32, command_index=10**6, entry="e" * 32, written_at_ms=1)
    own_store = cached_store(settings.OBJECT_STORE_URL)
    own_store.put(lost.key, lost.encode())
    report = rounds.clean_buckets(lambda url: store)
    assert (report.deleted, report.partials, report.failed) == (0, 0, 1)
    assert all(has(store, f"acme/{ulid}/index") for ulid in (*day, block_id(1001)))
    Block.objects.filter(state=BlockState.MARKED).update(state=BlockState.GONE)  # only the unfinished upload is left
    assert rounds.clean_buckets(lambda url: store).failed == 1
    assert has(store, f"acme/{block_id(1001)}/index")
    own_store.delete(lost.key)
    assert rounds.clean_buckets(lambda url: store).partials == 1


def test_a_result_not_yet_written_to_the_bucket_delays_larger_ranges(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    """Otherwise the twelve hours would be merged without it, and again with it."""
    fill_day(store)
    rounds.scan_buckets(lambda url: store)
    assert len(rounds.plan_due(lambda url: store).jobs) == 12
    specs = node.take(12)
    node.finish(*specs[:5])
    rounds.write_outboxes(lambda url: store)
    node.finish(*specs[5:])
    assert rounds.plan_due(lambda url: store).jobs == []
    rounds.write_outboxes(lambda url: store)
    assert len(rounds.plan_due(lambda url: store).jobs) == 2


def test_two_that_plan_the_same_tenant_make_each_group_once(
    service: Service, bucket: Bucket, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_day(store)
    rounds.scan_buckets(lambda url: store)
    first, second = (due_tenants(service.clock.now_ms, 1)[0] for _ in range(2))
    plan = plan_tenants._plan

    def plan_and_be_overtaken(*arguments: Any) -> Any:
        planned = plan(*arguments)
        monkeypatch.undo()
        assert len(plan_tenant(second, store).jobs) == 12
        return planned

    monkeypatch.setattr(plan_tenants, "_plan", plan_and_be_overtaken)
    assert plan_tenant(first, store).jobs == []
    assert Group.objects.count() == Job.objects.count() == 12


def test_planning_stops_at_the_queue_limit_and_resumes_later(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    Limits.objects.update(queue_max=5)
    fill_day(store)
    rounds.scan_buckets(lambda url: store)
    assert len(rounds.plan_due(lambda url: store).jobs) == 5
    assert rounds.plan_due(lambda url: store).jobs == []
    node.finish(*node.take(3))
    service.clock.advance(11)
    assert len(rounds.plan_due(lambda url: store).jobs) == 3
