"""A result that is not what its job was to make changes nothing, and says why in the attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from engine.formats.prometheus.meta import decode_meta, encode_meta
from engine.lanes.tsdb.jobs import TsdbMergeResult, TsdbMergeSpec
from engine.schedule.model import AttemptOutcome, JobState
from engine.storage import ObjectStore
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, put_block
from webadmin.lanes.tsdb.models import Block, Bucket, Group, OutboxStep
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.states import BlockState, GroupState
from webadmin.schedule.models import Attempt, Job

Change = Callable[[TsdbMergeResult], TsdbMergeResult]


def with_meta(**changes: object) -> Change:
    """Return a change of what the block says of itself."""

    def change(result: TsdbMergeResult) -> TsdbMergeResult:
        assert result.block is not None
        meta = decode_meta(result.block.meta)
        return replace(result, block=replace(result.block, meta=encode_meta(replace(meta, **changes))))

    return change


def with_compaction(**changes: object) -> Change:
    def change(result: TsdbMergeResult) -> TsdbMergeResult:
        assert result.block is not None
        meta = decode_meta(result.block.meta)
        return with_meta(compaction=replace(meta.compaction, **changes))(result)

    return change


def with_block(**changes: object) -> Change:
    def change(result: TsdbMergeResult) -> TsdbMergeResult:
        assert result.block is not None
        return replace(result, block=replace(result.block, **changes))

    return change


REFUSED: dict[str, Change] = {
    "other sources": lambda result: replace(result, sources=result.sources[:1]),
    "another id": with_block(id=block_id(99)),
    "meta.json of another block": with_meta(ulid=block_id(99)),
    "no meta.json": with_block(meta=b"{}"),
    "another interval": with_meta(min_time_ms=2 * HOUR_MS, max_time_ms=4 * HOUR_MS),
    "a longer time": with_meta(max_time_ms=3 * HOUR_MS),
    "the level of its sources": with_compaction(level=1),
    "descent of half": with_compaction(sources=(block_id(0),)),
    "foreign descent": with_compaction(sources=(block_id(0), block_id(1), block_id(98))),
    "foreign labels": with_meta(thanos={"version": 1, "labels": {"tenant": "beta"}}),
    "no extensions": with_meta(thanos=None),
    "a partition that is none": with_meta(
        thanos={
            "version": 1,
            "labels": {"tenant": "acme"},
            "extensions": {"partition_info": {"partition_id": 5, "partition_count": 2}},
        }
    ),
}


@pytest.fixture
def spec(bucket: Bucket, store: ObjectStore, node: FakeNode) -> TsdbMergeSpec:
    """The job of two replicas, which the node holds."""
    for number in range(2):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(2), 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    [spec] = node.take()
    return spec


@pytest.mark.parametrize("change", REFUSED.values(), ids=REFUSED.keys())
def test_what_is_not_the_jobs_result_is_refused(spec: TsdbMergeSpec, node: FakeNode, change: Change) -> None:
    node.worker.poll(node.success(spec, change(node.merge(spec))), capacity=0)
    attempt = Attempt.objects.get()
    assert (attempt.outcome, Job.objects.get().state) == (AttemptOutcome.REFUSED, JobState.WAITING)
    assert attempt.reason["message"]
    assert not Block.objects.filter(made_by__isnull=False).exists()
    assert Block.objects.filter(state=BlockState.OWNED).count() == 2
    assert not OutboxStep.objects.exists()
    node.finish(*node.take())
    assert Group.objects.get().state == GroupState.DONE


def with_samples(count: int) -> Change:
    def change(result: TsdbMergeResult) -> TsdbMergeResult:
        assert result.block is not None
        stats = decode_meta(result.block.meta).stats
        return with_meta(stats=replace(stats, num_samples=count))(result)

    return change


@pytest.mark.parametrize("together", [False, True])
def test_parts_have_no_more_samples_than_the_sources_of_all(
    bucket: Bucket, store: ObjectStore, node: FakeNode, together: bool
) -> None:
    Bucket.objects.update(partition_series=10, readers_know_partitions=True)
    for number in range(2):
        put_block(store, "acme/", block_id(number), 0, 2 * HOUR_MS)
    put_block(store, "acme/", block_id(2), 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    specs = node.take(4)
    assert len(specs) == specs[0].partitions == 2
    most = 100 * 2  # of both sources
    updates = [
        node.success(spec, with_samples(count)(node.merge(spec)))
        for spec, count in zip(specs, (50, most - 49), strict=True)
    ]
    if together:
        node.worker.poll(*updates, capacity=0)
    else:
        for update in updates:
            node.worker.poll(update, capacity=0)
    assert sorted(Attempt.objects.values_list("outcome", flat=True)) == [
        AttemptOutcome.COMPLETED,
        AttemptOutcome.REFUSED,
    ]
    refused = Attempt.objects.get(outcome=AttemptOutcome.REFUSED)
    assert refused.reason["message"] == f"the parts of its group have {most + 1} samples, their sources {most}"
    assert Group.objects.get().state == GroupState.OPEN
    node.finish(*node.take())
    assert Group.objects.get().state == GroupState.DONE


def test_a_merge_that_left_nothing_ends_its_sources(spec: TsdbMergeSpec, node: FakeNode, store: ObjectStore) -> None:
    nothing = TsdbMergeResult(sources=tuple(source.id for source in spec.sources), block=None)
    node.worker.poll(node.success(spec, nothing), capacity=0)
    assert Group.objects.get().state == GroupState.DONE
    rounds.write_outboxes(lambda url: store)
    assert Block.objects.filter(state=BlockState.MARKED).count() == 2


def test_a_stored_result_has_the_bytes_read(spec: TsdbMergeSpec, node: FakeNode) -> None:
    node.finish(spec)
    kept = Job.objects.get().result
    assert kept["blocks"] == [{"id": spec.result_id(), "size": kept["blocks"][0]["size"]}]
    assert kept["bytes_read"] == 1
