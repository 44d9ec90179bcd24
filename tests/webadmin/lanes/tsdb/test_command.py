"""``manage.py tsdb`` and the orders of the admin: adopting, telling, changing."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from engine.protocol.messages import FailureReason
from engine.schedule.model import JobState
from engine.storage import InvalidStoreUrl, ObjectStore
from tests.webadmin.admin.conftest import operator  # noqa: F401  (a fixture)
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, put_block, put_sound_block
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.tsdb.models import Bucket, BucketTenant
from webadmin.lanes.tsdb.progress import tenant_progress
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import BucketRefused, adopt_bucket, change_bucket
from webadmin.schedule.explain import explain_name
from webadmin.schedule.models import Job, Limits


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("tsdb", *arguments, stdout=out, stderr=out)
    return out.getvalue()


def put_pair(store: ObjectStore) -> None:
    for number in range(2):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(2), 4 * HOUR_MS, 6 * HOUR_MS)


def test_adopting_waits_until_nothing_is_left_to_do(service: Service, store: ObjectStore) -> None:
    """A lone block: there is nothing to merge, so no node is needed."""
    put_block(store, "acme/", block_id(0), 0, 2 * HOUR_MS)
    told = run("adopt", store.url, "--layout", "cortex", "--name", "metrics", "--wait", "--ranges", "2h,8h")
    assert "adopted metrics" in told
    assert "caught up" in told
    assert Bucket.objects.get().ranges == "2h,8h"
    assert AuditEntry.objects.filter(action="adopt_bucket", target="metrics").exists()


def test_waiting_for_completion_ends_with_the_parked_jobs(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    Limits.objects.update(failures_max=1)
    for number in range(2):
        put_sound_block(store, "acme/", block_id(number))
    put_block(store, "acme/", block_id(2), 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    for _ in range(2):
        [spec] = node.take()
        node.worker.poll(node.failed(spec, FailureReason(error_class="Odd", message="broken")), capacity=0)
    with pytest.raises(CommandError, match=r"1 job parked.*--lane tsdb"):
        run("adopt", store.url, "--layout", "cortex", "--wait")
    [told] = tenant_progress()
    assert (told.is_done, told.is_stuck, told.jobs_parked) == (False, True, 1)


def test_a_tenant_with_finished_jobs_is_not_done_before_it_is_planned_again(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    node.work_off()
    rounds.write_outboxes(lambda url: store)
    [told] = tenant_progress()
    assert (told.jobs_waiting, told.jobs_running, told.to_write, told.is_done) == (0, 0, 0, False)
    assert len(rounds.plan_due(lambda url: store).jobs) == 1  # the 12 h


def test_status_and_explain_show_waiting_work_and_reasons(
    service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    [tenant] = json.loads(run("status", "--json"))["tenants"]
    assert (tenant["tenant"], tenant["blocks"], tenant["compactions"], tenant["jobs_waiting"]) == (
        "acme",
        3,
        2,
        1,
    )  # and then the 12 h
    assert not tenant["is_done"]
    assert "acme" in run("status", "--bucket", "metrics")
    assert "the 2 h from 1970-01-01 00:00 UTC" in run("explain", block_id(0))
    with pytest.raises(CommandError, match="no bucket has a block"):
        run("explain", block_id(77))
    [told] = explain_name(block_id(0))
    assert told.state == "taken"
    [spec] = node.take()
    assert "waiting" not in explain_name(spec.job)[0].state
    node.finish(spec)
    [told] = explain_name(block_id(0))
    assert told.state == "superseded"
    [told] = explain_name(spec.result_id())
    assert "meta.json" in told.why


@pytest.mark.parametrize(
    "wrong",
    [
        {"layout": "mimir"},
        {"ranges": "2h,3h"},
        {"ranges": "soon"},
        {"url": "ftp://there/x"},
        {"url": "s3://" + "x" * 1000},
    ],
)
def test_what_cannot_be_adopted_is_refused_with_the_reason(db: None, store: ObjectStore, wrong: dict[str, str]) -> None:
    with pytest.raises((BucketRefused, InvalidStoreUrl)):
        adopt_bucket(**({"url": store.url, "layout": "cortex"} | wrong), context=CONTEXT)
    assert not Bucket.objects.exists()


def test_adopting_twice_is_adopting_once(bucket: Bucket) -> None:
    assert adopt_bucket(url=bucket.url, layout="cortex", context=CONTEXT) == bucket
    with pytest.raises(BucketRefused):
        adopt_bucket(url=bucket.url, layout="thanos", context=CONTEXT)


def test_changed_settings_are_audited_and_planned_with(bucket: Bucket, store: ObjectStore) -> None:
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    assert change_bucket(bucket, {"is_paused": True}, context=CONTEXT) == {"is_paused": True}
    rounds.plan_due(lambda url: store)
    assert BucketTenant.objects.get().refusal == "the bucket is paused"
    with pytest.raises(BucketRefused):
        change_bucket(bucket, {"ranges": "0h"}, context=CONTEXT)
    change_bucket(bucket, {"is_paused": False}, context=CONTEXT)
    assert rounds.plan_due(lambda url: store).jobs
    entries = AuditEntry.objects.filter(action="change_bucket").order_by("id")
    assert [entry.detail["after"] for entry in entries] == [{"is_paused": True}, {"is_paused": False}]


def test_replica_labels_stay_as_they_were_when_blocks_were_found(service: Service, store: ObjectStore) -> None:
    bucket = adopt_bucket(url=store.url, layout="thanos", context=CONTEXT)
    change_bucket(bucket, {"replica_labels": "pair,replica"}, context=CONTEXT)
    put_block(store, "", block_id(0), 0, 2 * HOUR_MS, labels={"a": "b"})
    rounds.scan_buckets(lambda url: store)
    with pytest.raises(BucketRefused, match="which tenant a block is of"):
        change_bucket(bucket, {"replica_labels": "pair", "is_paused": True}, context=CONTEXT)
    assert not Bucket.objects.get().is_paused
    change_bucket(bucket, {"replica_labels": "replica, pair"}, context=CONTEXT)
    assert Bucket.objects.get().replica_labels == "replica, pair"


def test_the_calendar_shows_what_is_to_be_done(
    operator: Client,  # noqa: F811
    bucket: Bucket,
    store: ObjectStore,
) -> None:
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    tenant = BucketTenant.objects.get()
    page = operator.get(f"/admin/tsdb/buckettenant/{tenant.id}/change/").content.decode()
    assert "<title>the 2 h from 1970-01-01 00:00 UTC: ready, 2 blocks, 2 of them waiting, 1 compactions</title>" in page
    assert "Compactions to catch up" in page


def test_the_page_of_a_job_shows_its_interval_and_blocks(
    operator: Client,  # noqa: F811
    bucket: Bucket,
    store: ObjectStore,
    node: FakeNode,
) -> None:
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    [spec] = node.take()
    node.finish(spec)
    page = operator.get(f"/admin/schedule/job/{Job.objects.get().id}/change/").content.decode()
    for text in ("the 2 h from 1970-01-01 00:00 UTC", block_id(0), block_id(1), spec.result_id()):
        assert text in page


def test_an_interval_with_a_parked_job_is_explained_before_it_is_planned_again(
    operator: Client,  # noqa: F811
    bucket: Bucket,
    store: ObjectStore,
    node: FakeNode,
) -> None:
    Limits.objects.update(failures_max=1)
    put_pair(store)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    for _ in range(2):
        [spec] = node.take()
        reason = FailureReason(error_class="MergeRefused", message="no")
        node.worker.poll(node.failed(spec, reason), capacity=0)
    assert Job.objects.get().state == JobState.PARKED
    page = operator.get(f"/admin/tsdb/buckettenant/{BucketTenant.objects.get().id}/change/").content.decode()
    assert "<title>the 2 h from 1970-01-01 00:00 UTC: parked, 2 blocks, 2 of them waiting" in page
    assert "parked: a job of it failed too often and waits for a person" in page
