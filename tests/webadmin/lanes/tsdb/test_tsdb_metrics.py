"""The numbers of buckets at ``/metrics`` are those of the schedule, whatever runs at once."""

from __future__ import annotations

from dataclasses import replace

from engine.formats.prometheus.meta import encode_meta
from engine.storage import ObjectStore
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, put_block
from tests.webadmin.progress.test_metrics import scrape
from webadmin.lanes.tsdb.models import Bucket
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services.buckets import change_bucket


def test_parts_that_a_bucket_had_before_it_was_adopted_are_counted(bucket: Bucket, store: ObjectStore) -> None:
    for number in range(2):
        meta = put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS, level=2, sources=[block_id(9)], labels={})
        info = {"partitioned_group_id": 7, "partition_count": 2, "partition_id": number}
        told = replace(meta, thanos={**(meta.thanos or {}), "extensions": {"partition_info": info}})
        store.put(f"acme/{meta.ulid}/meta.json", encode_meta(told))
    put_block(store, "other/", block_id(5), 0, 2 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    assert scrape()["lithify_tsdb_published_parts", ("metrics",)] == 2
    change_bucket(bucket, {"readers_know_partitions": True}, context=CONTEXT)
    rounds.plan_due(lambda url: store)
    assert scrape()["lithify_tsdb_published_parts", ("metrics",)] == 0


def test_waiting_running_and_unwritten_jobs_are_counted(bucket: Bucket, store: ObjectStore, node: FakeNode) -> None:
    for slot in range(6):
        for replica in range(2):
            put_block(store, "acme/", block_id(slot * 2 + replica), slot * 2 * HOUR_MS, (slot + 1) * 2 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    place = ("metrics", "acme")
    found = scrape()
    assert found["lithify_tsdb_remaining_compactions", place] == 6 + 1
    assert found["lithify_tsdb_waiting_jobs", place] == 6
    assert found["lithify_tsdb_blocks", ("metrics", "owned", "acme")] == 12
    assert found["lithify_tsdb_refused", place] == 0
    node.finish(*node.take(2))
    found = scrape()
    assert found["lithify_tsdb_waiting_jobs", place] == 4
    assert found["lithify_tsdb_outbox_steps", ("metrics",)] == 2 * 3
    assert found["lithify_jobs", ("1", "waiting")] == 4
