"""While another compactor works on a tenant, nothing of that tenant is planned, with a reason and an end."""

from __future__ import annotations

import json

from engine.storage import ObjectStore
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, block_id, put_block
from tests.webadmin.service import Service
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Folder
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.states import BlockState
from webadmin.schedule.models import Job

BLOCKS = [block_id(number) for number in range(3)]


def fill(store: ObjectStore, folder: str) -> None:
    for ulid in BLOCKS[:2]:
        put_block(store, folder, ulid, 0, 2 * HOUR_MS)
    put_block(store, folder, BLOCKS[2], 4 * HOUR_MS, 6 * HOUR_MS)


def visit(store: ObjectStore, folder: str, at_s: int, ulid: str = BLOCKS[0]) -> None:
    mark = {"compactorID": "compactor-7", "visitTime": at_s, "version": 1}
    store.put(f"{folder}{ulid}/visit-mark.json", json.dumps(mark).encode())


def test_a_fresh_foreign_mark_refuses_its_tenant_and_no_other(
    service: Service, bucket: Bucket, store: ObjectStore
) -> None:
    for folder in ("acme/", "beta/"):
        fill(store, folder)
    visit(store, "acme/", service.clock.now_ms // 1000)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    acme, beta = BucketTenant.objects.order_by("name")
    assert "compactor-7" in acme.refusal
    assert acme.refused_until_ms == service.clock.now_ms // 1000 * 1000 + 600_000
    assert (beta.refusal, list(Job.objects.values_list("tenant", flat=True))) == ("", ["beta"])


def test_a_mark_at_a_block_that_is_not_to_be_merged_now_refuses_its_tenant(
    service: Service, bucket: Bucket, store: ObjectStore
) -> None:
    fill(store, "acme/")
    visit(store, "acme/", service.clock.now_ms // 1000, BLOCKS[2])
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    assert "compactor-7" in BucketTenant.objects.get().refusal
    assert not Job.objects.exists()


def test_planning_resumes_when_the_mark_has_expired(service: Service, bucket: Bucket, store: ObjectStore) -> None:
    fill(store, "acme/")
    visit(store, "acme/", service.clock.now_ms // 1000)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    assert not Job.objects.exists()
    service.clock.advance(601)
    rounds.plan_due(lambda url: store)
    assert Job.objects.count() == 1
    assert BucketTenant.objects.get().refusal == ""


def test_a_block_whose_meta_json_somebody_deletes_without_a_mark_is_missed_within_a_day(
    service: Service, bucket: Bucket, store: ObjectStore
) -> None:
    """Its other files still give its name: only a listing of every object shows it. Folders take turns at that."""
    for folder in ("acme/", "beta/"):
        fill(store, folder)
    rounds.scan_buckets(lambda url: store)
    for folder in ("acme/", "beta/"):
        store.delete(f"{folder}{BLOCKS[2]}/meta.json")
    rounds.scan_buckets(lambda url: store)
    gone = Block.objects.filter(state=BlockState.GONE, ulid=BLOCKS[2])
    assert gone.count() == 0
    service.clock.advance(24 * 3600)
    rounds.scan_buckets(lambda url: store)
    assert gone.count() == 1
    rounds.scan_buckets(lambda url: store)
    assert gone.count() == 2
    assert not Folder.objects.exclude(listed_at_ms=service.clock.now_ms).exists()
