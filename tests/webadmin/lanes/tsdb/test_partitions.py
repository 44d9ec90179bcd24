"""No group is cut into parts where readers take parts for duplicates; one that would have to be says so, with reason.

Published parts are reported and merged into whole blocks. State and notices are the same wherever they are shown.
"""

from __future__ import annotations

import json

import pytest
from django.test import Client
from django.urls import reverse

from engine.storage import ObjectStore
from tests.webadmin.admin.conftest import operator
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, put_block, visible
from tests.webadmin.lanes.tsdb.test_command import run
from tests.webadmin.service import Service
from webadmin.lanes.tsdb import merge_lane
from webadmin.lanes.tsdb.explain import explain_blocks
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import BucketRefused, adopt_bucket, change_bucket
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind
from webadmin.lanes.tsdb.status import bucket_state, bucket_statuses
from webadmin.schedule.models import Job

__all__ = ["operator"]


def put_three(store: ObjectStore, folder: str = "acme/", labels: dict[str, str] | None = None) -> None:
    """Write three blocks of ten series in one interval, and a later one."""
    for number in range(3):
        put_block(store, folder, block_id(number), 0, 2 * HOUR_MS, labels=labels)
    put_block(store, folder, block_id(3), 4 * HOUR_MS, 6 * HOUR_MS, labels=labels)


def text_of(operator: Client, page: str) -> str:
    return operator.get(page).content.decode().replace("\xa0", " ")


def plan(store: ObjectStore) -> list[str]:
    rounds.scan_buckets(lambda url: store)
    BucketTenant.objects.update(plan_at_ms=0)
    return rounds.plan_due(lambda url: store).jobs


@pytest.mark.parametrize("layout", ["cortex", "thanos"])
@pytest.mark.parametrize("limit", ["partition_series", "partition_index_bytes"])
def test_a_group_that_would_have_to_be_cut_is_not_planned(
    service: Service, store: ObjectStore, operator: Client, layout: str, limit: str
) -> None:
    bucket = adopt_bucket(
        url=store.url, layout=layout, name="metrics", context=CONTEXT, consistency_delay_seconds=0, **{limit: 10}
    )
    put_three(store, "acme/" if layout == "cortex" else "", {"cluster": "a"})
    assert plan(store) == []
    assert not Group.objects.exists()
    tenant = BucketTenant.objects.get()
    assert (tenant.too_large, tenant.parts, tenant.refusal) == (1, 0, "")
    [told] = explain_blocks(block_id(0))
    assert (told.state, "would need" in told.why) == ("waiting", True)
    assert "1 group is not merged" in run("status")
    [of_json] = json.loads(run("status", "--json"))["tenants"]
    assert (of_json["too_large"], of_json["parts"]) == (1, 0)
    tenant_page = reverse("admin:tsdb_buckettenant_change", args=[tenant.id])
    for page in (reverse("admin:tsdb_bucket_change", args=[bucket.id]), tenant_page):
        assert "1 group is not merged" in text_of(operator, page)
    assert "1 group of buckets not merged" in text_of(operator, "/admin/")
    change_bucket(bucket, {limit: 0}, context=CONTEXT)
    assert len(rounds.plan_due(lambda url: store).jobs) == 1, "it fits into one part again"
    assert BucketTenant.objects.get().too_large == 0


def test_only_cortex_buckets_accept_readers_know_partitions(service: Service, store: ObjectStore) -> None:
    with pytest.raises(BucketRefused, match="readers know partitions"):
        adopt_bucket(url=store.url, layout="thanos", context=CONTEXT, readers_know_partitions=True)
    bucket = adopt_bucket(url=store.url, layout="thanos", context=CONTEXT)
    with pytest.raises(BucketRefused, match="readers know partitions"):
        change_bucket(bucket, {"readers_know_partitions": True}, context=CONTEXT)
    run("adopt", store.url + "-other", "--layout", "cortex", "--name", "other", "--readers-know-partitions")
    assert Bucket.objects.get(name="other").readers_know_partitions


@pytest.fixture
def cut(service: Service, bucket: Bucket, store: ObjectStore) -> list[str]:
    """The jobs of a group that was planned in four parts while the bucket allowed it."""
    change_bucket(bucket, {"partition_series": 10, "readers_know_partitions": True}, context=CONTEXT)
    put_three(store)
    jobs = plan(store)
    assert len(jobs) == 4
    return jobs


def test_published_parts_are_reported_and_merged(
    cut: list[str], bucket: Bucket, store: ObjectStore, node: FakeNode, operator: Client
) -> None:
    assert node.work_off() == 4
    rounds.write_outboxes(lambda url: store)
    parts = set(Block.objects.filter(partitions=4, state=BlockState.LIVE).values_list("ulid", flat=True))
    assert len(parts) == 4
    change_bucket(bucket, {"readers_know_partitions": False}, context=CONTEXT)
    assert plan(store) == [], "40 series are more than 10"
    tenant = BucketTenant.objects.get()
    assert (tenant.parts, tenant.too_large) == (4, 1)
    assert "4 published blocks are parts of a group" in run("status")
    page = reverse("admin:tsdb_bucket_change", args=[bucket.id])
    assert "4 published blocks are parts of a group" in text_of(operator, page)
    assert "4 published blocks of buckets may be deleted" in text_of(operator, "/admin/")
    change_bucket(bucket, {"partition_series": 0}, context=CONTEXT)
    assert len(plan(store)) == 1
    assert node.work_off() == 1
    rounds.write_outboxes(lambda url: store)
    [whole] = visible(store, "acme/") - {block_id(3)}
    assert Block.objects.get(ulid=whole).partitions == 1
    assert set(Block.objects.filter(ulid__in=parts).values_list("state", flat=True)) <= {"superseded", "marked"}
    plan(store)
    assert BucketTenant.objects.get().parts == 0


def test_a_group_in_parts_is_given_up_when_parts_are_not_allowed_any_more(
    cut: list[str], bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    node.finish(node.take()[0])
    change_bucket(bucket, {"readers_know_partitions": False, "partition_series": 0}, context=CONTEXT)
    [job] = plan(store)
    assert Group.objects.filter(partitions=4).get().state == GroupState.DISSOLVED
    assert Job.objects.get(name=job).spec["partitions"] == 1
    assert visible(store, "acme/") == {block_id(number) for number in range(4)}, "no part was published"


def test_a_group_in_parts_is_given_up_in_a_paused_bucket_too(
    cut: list[str], bucket: Bucket, store: ObjectStore
) -> None:
    change_bucket(bucket, {"readers_know_partitions": False, "is_paused": True}, context=CONTEXT)
    assert plan(store) == []
    assert Group.objects.get().state == GroupState.DISSOLVED


@pytest.mark.parametrize("is_checked_before", [False, True])
def test_a_part_that_ends_between_the_change_and_the_plan_is_refused(
    cut: list[str],
    bucket: Bucket,
    store: ObjectStore,
    node: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    is_checked_before: bool,
) -> None:
    specs = node.take(4)
    reports = [node.success(spec) for spec in specs]
    change_bucket(bucket, {"readers_know_partitions": False, "partition_series": 0}, context=CONTEXT)
    as_before = [True] * (4 if is_checked_before else 0)
    monkeypatch.setattr(merge_lane, "allows_partitions", lambda bucket: as_before.pop() if as_before else False)
    node.worker.poll(*reports, capacity=0)
    assert not as_before
    assert not Block.objects.filter(partitions__gt=1).exists()
    assert Group.objects.get().state == GroupState.OPEN
    monkeypatch.undo()
    [job] = plan(store)
    assert Job.objects.get(name=job).spec["partitions"] == 1


@pytest.mark.parametrize("published", [0, 2])
def test_parts_that_are_done_and_not_published_are_withdrawn(
    cut: list[str], bucket: Bucket, store: ObjectStore, node: FakeNode, published: int
) -> None:
    assert node.work_off() == 4
    before = visible(store, "acme/")
    for step in OutboxStep.objects.filter(kind=StepKind.WRITE_META).order_by("id")[:published]:
        block = step.block
        store.put(f"acme/{block.ulid}/meta.json", bytes(block.meta))
        Block.objects.filter(id=block.id).update(visible_at_ms=1)
        OutboxStep.objects.filter(id=step.id).update(done_at_ms=1)
    change_bucket(bucket, {"readers_know_partitions": False, "partition_series": 0}, context=CONTEXT)
    rounds.write_outboxes(lambda url: store)
    assert len(visible(store, "acme/") - before) == published
    assert "parts any more" in OutboxStep.objects.get(attempts=1, done_at_ms=None).last_error
    [job] = plan(store)
    assert Job.objects.get(name=job).spec["partitions"] == 1
    assert Group.objects.get(partitions=4).state == GroupState.DISSOLVED
    rounds.write_outboxes(lambda url: store)
    assert visible(store, "acme/") == before
    assert node.work_off() == 1
    rounds.write_outboxes(lambda url: store)
    [whole] = visible(store, "acme/") - {block_id(3)}
    assert Block.objects.get(ulid=whole).partitions == 1


def test_a_bucket_stands_alike_wherever_it_is_shown(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode, operator: Client
) -> None:
    def shown() -> set[str]:
        words = ("compacting", "caught up", "needs attention", "not scanned yet")
        pages = (
            *("/admin/", reverse("admin:tsdb_bucket_changelist")),
            reverse("admin:tsdb_bucket_change", args=[bucket.id]),
        )
        found = [{word for word in words if word in text_of(operator, page)} for page in pages]
        assert found[0] == found[1] == found[2], found
        return found[0]

    put_three(store)
    assert shown() == {"not scanned yet"}
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    BucketTenant.objects.update(compactions=0)
    assert shown() == {"compacting"}, "a job waits"
    [one] = bucket_statuses()
    assert bucket_state(one).word == "compacting"
