"""Others write into the bucket too: what they delete, mark and leave half done is taken as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from engine.lanes.tsdb.buckets.marks import remove_mark, write_mark
from engine.lanes.tsdb.buckets.model import Mark, MarkKind
from engine.storage import ObjectStore, open_store
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, has, put_block
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder, Group
from webadmin.lanes.tsdb.policies import layout_of
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import adopt_bucket
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.models import Job, LogHead


def put_slot(store: ObjectStore, folder: str = "acme/", replicas: int = 3) -> None:
    for number in range(replicas):
        put_block(store, folder, block_id(number), 0, 2 * HOUR_MS)
    put_block(store, folder, block_id(9), 4 * HOUR_MS, 6 * HOUR_MS)


def scan_and_plan(store: ObjectStore) -> list[str]:
    rounds.scan_buckets(lambda url: store)
    return rounds.plan_due(lambda url: store).jobs


def test_a_deleted_source_ends_its_group_and_the_rest_is_merged(
    bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    put_slot(store)
    scan_and_plan(store)
    [held] = node.take()
    late = node.success(held)
    for name in ("index", "chunks/000001", "meta.json"):
        store.delete(f"acme/{block_id(0)}/{name}")
    assert len(scan_and_plan(store)) == 1
    assert Group.objects.get(state=GroupState.DISSOLVED).ended_because
    node.worker.poll(late, capacity=0)  # the result of the group that was given up
    [again] = node.take()
    assert {source.id for source in again.sources} == {block_id(1), block_id(2)}
    node.finish(again)
    assert Block.objects.get(ulid=block_id(0)).state == BlockState.GONE
    assert LogHead.objects.get().live_job_count == 0


@pytest.mark.parametrize("kind", MarkKind)
def test_a_source_that_somebody_marks_ends_its_group(
    bucket: Bucket, store: ObjectStore, node: FakeNode, kind: MarkKind
) -> None:
    put_slot(store)
    scan_and_plan(store)
    write_mark(store, layout_of(bucket), "acme/", Mark(ulid=block_id(0), kind=kind, time_s=1, reason="manual"))
    scan_and_plan(store)
    [again] = node.take()
    assert {source.id for source in again.sources} == {block_id(1), block_id(2)}
    remove_mark(store, layout_of(bucket), "acme/", block_id(0), kind)
    rounds.scan_buckets(lambda url: store)
    back = Block.objects.get(ulid=block_id(0))
    assert (back.state, back.no_compact) == (BlockState.LIVE, "")


def test_what_scans_keep_of_marks_is_short_and_read_by_scans_only(
    bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    """A folder may have a hundred thousand marks, and every poll joins it."""
    put_slot(store)
    story = Mark(ulid=block_id(9), kind=MarkKind.NO_COMPACT, time_s=1, reason="manual", details="x" * 60_000)
    write_mark(store, layout_of(bucket), "acme/", story)
    rounds.scan_buckets(lambda url: store)
    assert len(json.dumps(Folder.objects.get().examined)) < 1000
    with CaptureQueriesContext(connection) as queries:
        assert rounds.plan_due(lambda url: store).jobs
        assert node.work_off()
        assert rounds.write_outboxes(lambda url: store).written
        rounds.clean_buckets(lambda url: store)
        assert explain_blocks(block_id(9))
    read_whole = re.compile(r'(?<!\()"tsdb_folder"\."examined"')
    assert not [each["sql"] for each in queries if read_whole.search(each["sql"])]
    write_mark(store, layout_of(bucket), "acme/", Mark(ulid=block_id(8), kind=MarkKind.DELETION, time_s=1))
    assert rounds.scan_buckets(lambda url: store).total("marked") == 4  # that one, and ours on the sources


def test_a_tenant_that_its_owner_deletes_is_left_alone(bucket: Bucket, store: ObjectStore) -> None:
    put_slot(store)
    store.put("acme/markers/tenant-deletion-mark.json", json.dumps({"deletion_time": 1}).encode())
    assert scan_and_plan(store) == []
    assert "deletion" in BucketTenant.objects.get().refusal


def test_an_unfinished_upload_goes_when_it_is_old_and_ours_stays_while_its_group_runs(
    bucket: Bucket, store: ObjectStore, node: FakeNode, service: Service
) -> None:
    Bucket.objects.update(partition_series=10, partial_age_seconds=0, readers_know_partitions=True)
    service.clock.now_ms += 100_000_000_000  # behind the times that the store gives its objects
    put_slot(store)
    put_block(store, "acme/", block_id(50), 0, 2 * HOUR_MS, has_meta=False)
    scan_and_plan(store)
    first, *_ = node.take(8)
    node.finish(first)
    rounds.scan_buckets(lambda url: store)
    rounds.clean_buckets(lambda url: store)
    assert not has(store, f"acme/{block_id(50)}/index")
    assert has(store, f"acme/{first.result_id()}/index")


def test_a_block_whose_meta_cannot_be_read_is_neither_planned_nor_deleted(bucket: Bucket, store: ObjectStore) -> None:
    put_slot(store)
    store.put(f"acme/{block_id(0)}/meta.json", b"{not json")
    scan_and_plan(store)
    assert Job.objects.get().source_count == 2
    assert has(store, f"acme/{block_id(0)}/index")
    [bad] = BucketTenant.objects.get().folder.examined["bad"]
    assert bad["ulid"] == block_id(0)


def test_two_tenants_and_two_buckets_never_meet(
    bucket: Bucket, store: ObjectStore, node: FakeNode, tmp_path: Path
) -> None:
    """Equal ids, times and names of tenants: still each tenant of each bucket has a job of its own."""
    other = open_store(str(tmp_path / "other"))
    adopt_bucket(url=other.url, layout="cortex", name="other", context=CONTEXT, consistency_delay_seconds=0)
    stores = {store.url: store, other.url: other}
    put_slot(store, "acme/")
    put_slot(store, "beta/")
    put_slot(other, "acme/")
    rounds.scan_buckets(stores.__getitem__)
    assert len(rounds.plan_due(stores.__getitem__).jobs) == 3
    specs = node.take(4)
    told = {(spec.tenant, spec.folder, spec.bucket_url) for spec in specs}
    assert told == {
        ("acme", "acme/", store.url),
        ("beta", "beta/", store.url),
        ("acme", "acme/", other.url),
    }
    node.finish(*specs)
    made = Block.objects.filter(made_by__isnull=False).select_related("tenant__bucket", "made_by")
    places = [(row.tenant.bucket.name, row.tenant.name) for row in made]
    assert sorted(places) == [("metrics", "acme"), ("metrics", "beta"), ("other", "acme")]
    assert all(row.made_by.spec["bucket"] == row.tenant.bucket.name for row in made)


def test_the_shard_of_a_tenant_is_offered_its_jobs_first_and_anyone_after_a_lease(
    service: Service, bucket: Bucket, store: ObjectStore
) -> None:
    Bucket.objects.update(tenant_shard_size=1)
    put_slot(store)
    crew = [FakeNode(service.worker(), store) for _ in range(3)]
    for node in crew:
        node.take(0)
    scan_and_plan(store)
    at_once = [bool(node.take()) for node in crew]
    assert at_once.count(True) == 1
    Job.objects.update(state="waiting", worker=None, lease_expires_ms=None, token=0)
    slow = crew[at_once.index(False)]
    assert slow.take() == []
    service.clock.advance(14)
    slow.take(0)
    service.clock.advance(2)
    assert len(slow.take()) == 1


def test_a_tenant_that_is_marked_at_the_top_of_the_bucket_is_left_alone(bucket: Bucket, store: ObjectStore) -> None:
    put_slot(store)
    store.put("__markers__/acme/tenant-deletion-mark.json", json.dumps({"deletion_time": 1}).encode())
    store.put("__markers__/other/something-else.json", b"{}")
    assert scan_and_plan(store) == []
    assert "deletion" in BucketTenant.objects.get().refusal
    store.delete("__markers__/acme/tenant-deletion-mark.json")
    assert scan_and_plan(store)
