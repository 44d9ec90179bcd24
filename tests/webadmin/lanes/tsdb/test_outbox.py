"""Writes to the bucket after a commit: in order, resumable after each step, harmless when two processes do it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from django.core.management import CommandError, call_command
from django.db.models import F

from engine.lanes.tsdb.buckets.bucket_index import decode_index
from engine.storage import ObjectInfo, ObjectStore, StorageError
from tests.webadmin.lanes.tsdb.conftest import CONTEXT
from tests.webadmin.lanes.tsdb.fake_bucket import HOUR_MS, FakeNode, block_id, has, origins, put_block, visible
from tests.webadmin.progress.test_metrics import scrape
from tests.webadmin.service import Service
from webadmin.base.access.models import AuditEntry
from webadmin.lanes.tsdb.models import Block, Bucket, BucketTenant, Group, OutboxStep
from webadmin.lanes.tsdb.services import rounds
from webadmin.lanes.tsdb.services import write_outbox as write_outbox_module
from webadmin.lanes.tsdb.services.withdraw_groups import withdraw_groups
from webadmin.lanes.tsdb.services.write_outbox import tenants_to_write, write_outbox
from webadmin.lanes.tsdb.states import BlockState, GroupState, StepKind

REPLICAS = [block_id(number) for number in range(3)]
LATER = block_id(3)


@pytest.fixture
def committed(service: Service, bucket: Bucket, store: ObjectStore, node: FakeNode) -> BucketTenant:
    """Three replicas were merged and the job is done; nothing is written to the bucket yet."""
    for ulid in REPLICAS:
        put_block(store, "acme/", ulid, 0, 2 * HOUR_MS)
    put_block(store, "acme/", LATER, 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    assert node.work_off() == 1
    return BucketTenant.objects.select_related("bucket", "folder").get()


class Dies(Exception):
    """The process is killed here."""


def dying_after(store: ObjectStore, count: int) -> Callable[[str, bytes], ObjectInfo]:
    """Return a put of which so many succeed."""
    put, done = store.put, []

    def dies(key: str, data: bytes) -> ObjectInfo:
        if len(done) >= count:
            raise Dies(key)
        done.append(key)
        return put(key, data)

    return dies


def check_all_data_is_visible(store: ObjectStore) -> None:
    assert origins(store, "acme/", visible(store, "acme/")) == {*REPLICAS, LATER}


def test_nothing_is_visible_before_the_outbox_is_written(committed: BucketTenant, store: ObjectStore) -> None:
    assert visible(store, "acme/") == {*REPLICAS, LATER}
    result = Block.objects.get(made_by__isnull=False)
    assert has(store, f"acme/{result.ulid}/index")
    assert not has(store, f"acme/{result.ulid}/meta.json")
    kinds = list(OutboxStep.objects.order_by("id").values_list("kind", flat=True))
    assert kinds == [StepKind.WRITE_META, *[StepKind.MARK_DELETION] * 3]


@pytest.mark.parametrize("writes", range(10))
def test_an_outbox_killed_after_any_write_resumes(
    committed: BucketTenant, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """A meta.json, two copies of three marks, the index and its status: nine writes."""
    monkeypatch.setattr(store, "put", dying_after(store, writes))
    try:
        write_outbox(committed, store)
        assert writes == 9
    except Dies:
        check_all_data_is_visible(store)
    monkeypatch.undo()
    write_outbox(committed, store)
    check_all_data_is_visible(store)
    result = Block.objects.get(made_by__isnull=False)
    assert visible(store, "acme/") == {result.ulid, LATER}
    assert not OutboxStep.objects.filter(done_at_ms=None).exists()
    assert set(Block.objects.filter(ulid__in=REPLICAS).values_list("state", flat=True)) == {BlockState.MARKED}
    assert write_outbox(committed, store).written == 0


def test_a_step_that_is_refused_holds_back_those_behind_it(
    committed: BucketTenant, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(key: str, data: bytes) -> ObjectInfo:
        raise StorageError("put", key, "the bucket is read-only")

    monkeypatch.setattr(store, "put", refuse)
    report = write_outbox(committed, store)
    assert (report.written, report.failed) == (0, 1)
    first = OutboxStep.objects.order_by("id").first()
    assert first is not None
    assert (first.attempts, first.done_at_ms) == (1, None)
    assert "read-only" in first.last_error
    monkeypatch.undo()
    assert write_outbox(committed, store).written == 4


def test_sources_are_not_marked_while_the_result_lacks_a_file(committed: BucketTenant, store: ObjectStore) -> None:
    result = Block.objects.get(made_by__isnull=False)
    store.delete(f"acme/{result.ulid}/index")
    assert write_outbox(committed, store).failed == 1
    assert visible(store, "acme/") == {*REPLICAS, LATER}


def test_two_that_write_the_same_outbox_do_no_harm(committed: BucketTenant, store: ObjectStore) -> None:
    OutboxStep.objects.update(done_at_ms=None)
    write_outbox(committed, store)
    before = {info.key: store.get(info.key) for info in store.list("acme/") if not info.key.endswith(".gz")}
    OutboxStep.objects.update(done_at_ms=None)
    write_outbox(committed, store)
    assert {info.key: store.get(info.key) for info in store.list("acme/") if info.key in before} == before


def index_age_s(service: Service, store: ObjectStore) -> int:
    """Return how old the bucket index says it is."""
    return service.clock.now_ms // 1000 - decode_index(store.get("acme/bucket-index.json.gz")).updated_at_s


def test_an_index_is_written_anew_before_its_readers_refuse_it(
    service: Service, committed: BucketTenant, store: ObjectStore
) -> None:
    """Also of a paused bucket: its queriers read on."""
    rounds.write_outboxes(lambda url: store)
    Bucket.objects.update(is_paused=True)
    service.clock.advance(14 * 60)
    assert rounds.write_outboxes(lambda url: store).indexes == 0
    service.clock.advance(60)
    assert rounds.write_outboxes(lambda url: store).indexes == 1
    assert index_age_s(service, store) == 0
    assert scrape()["lithify_tsdb_index_written_timestamp_seconds", ("metrics", "acme")] == service.clock.now_ms / 1000
    assert rounds.write_outboxes(lambda url: store).indexes == 0


def test_an_index_is_fresh_though_a_step_before_it_fails_for_good(
    service: Service, committed: BucketTenant, store: ObjectStore
) -> None:
    store.delete(f"acme/{Block.objects.get(made_by__isnull=False).ulid}/index")
    for _ in range(2):
        report = rounds.write_outboxes(lambda url: store)
        assert (report.failed, report.indexes, index_age_s(service, store)) == (1, 1, 0)
        assert rounds.write_outboxes(lambda url: store).indexes == 0
        service.clock.advance(15 * 60)


def test_an_index_that_cannot_be_written_makes_room_for_others(
    service: Service, committed: BucketTenant, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds.write_outboxes(lambda url: store)
    service.clock.advance(15 * 60)

    def refuse(key: str, data: bytes) -> ObjectInfo:
        raise StorageError("put", key, "the bucket is read-only")

    with monkeypatch.context() as patched:
        patched.setattr(store, "put", refuse)
        assert rounds.write_outboxes(lambda url: store).indexes == 0
    assert tenants_to_write() == []
    service.clock.advance(61)
    assert rounds.write_outboxes(lambda url: store).indexes == 1


def test_ageing_indexes_are_spread_over_rounds_the_oldest_first(
    service: Service, bucket: Bucket, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, folder in enumerate(("acme/", "beta/", "gamma/")):
        put_block(store, folder, block_id(number), 0, 2 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    assert rounds.write_outboxes(lambda url: store).indexes == 3
    monkeypatch.setattr("webadmin.lanes.tsdb.services.write_outbox.INDEXES_PER_ROUND", 2)
    BucketTenant.objects.filter(name="gamma").update(index_written_at_ms=1)
    service.clock.advance(15 * 60)
    written = []
    for _ in range(3):
        written.append(rounds.write_outboxes(lambda url: store).indexes)
        fresh = BucketTenant.objects.filter(index_written_at_ms=service.clock.now_ms)
        assert fresh.filter(name="gamma").exists()
    assert written == [2, 1, 0]


def test_an_index_that_somebody_else_writes_is_left_to_them(
    service: Service, committed: BucketTenant, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would write what it read after the first had read: the first must not have the last word."""
    real, others = write_outbox_module.update_index, []

    def meanwhile(*args: object, **told: object) -> object:
        others.append(write_outbox(committed, store).indexes)
        return real(*args, **told)  # type: ignore[arg-type]

    monkeypatch.setattr(write_outbox_module, "update_index", meanwhile)
    assert write_outbox(committed, store).indexes == 1
    assert others == [0]
    BucketTenant.objects.update(index_wanted=F("index_wanted") + 1, index_writer_until_ms=service.clock.now_ms + 1000)
    assert write_outbox(committed, store).indexes == 0
    service.clock.advance(2)  # whoever had the turn was killed
    assert write_outbox(committed, store).indexes == 1


def test_a_writer_that_outlived_its_lock_has_the_index_written_again(
    service: Service, committed: BucketTenant, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = write_outbox_module.update_index, []

    def slow(*args: object, **told: object) -> object:
        if not others:
            others.append(0)
            service.clock.advance(31)
            others[0] = write_outbox(committed, store).indexes
        return real(*args, **told)  # type: ignore[arg-type]

    monkeypatch.setattr(write_outbox_module, "update_index", slow)
    assert (write_outbox(committed, store).indexes, others) == (1, [1])
    assert [write_outbox(committed, store).indexes for _ in range(2)] == [1, 0]


def test_a_result_that_is_refused_for_good_is_withdrawn_and_merged_anew(
    committed: BucketTenant, store: ObjectStore, node: FakeNode
) -> None:
    lost = Block.objects.get(made_by__isnull=False)
    group = Group.objects.get()
    early = withdraw_groups([group.id], context=CONTEXT)  # the bucket has refused nothing yet
    assert (early.changed, early.left[0][0]) == ((), str(group))
    store.delete(f"acme/{lost.ulid}/index")
    assert write_outbox(committed, store).failed == 1
    call_command("tsdb", "withdraw", str(group.id), "--why", "its files are gone")
    group.refresh_from_db()
    lost.refresh_from_db()
    assert (group.state, lost.state) == (GroupState.DISSOLVED, BlockState.GONE)
    assert "its files are gone" in group.ended_because
    assert AuditEntry.objects.filter(action="withdraw_groups", target="1 groups").exists()
    rounds.plan_due(lambda url: store)
    assert node.work_off() == 1
    assert rounds.write_outboxes(lambda url: store).failed == 0
    check_all_data_is_visible(store)
    assert len(visible(store, "acme/")) == 2
    with pytest.raises(CommandError, match="has not refused"):
        call_command("tsdb", "withdraw", str(group.id), "--why", "again")


@pytest.mark.parametrize("is_covered", [True, False])
def test_a_duplicate_is_marked_only_while_what_holds_its_data_is_visible(
    service: Service, bucket: Bucket, store: ObjectStore, is_covered: bool
) -> None:
    held, whole = REPLICAS[0], LATER
    put_block(store, "acme/", held, 0, 2 * HOUR_MS)
    put_block(store, "acme/", whole, 0, 2 * HOUR_MS, level=2, sources=REPLICAS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    block = Block.objects.get(ulid=held)
    assert block.state == BlockState.SUPERSEDED
    if not is_covered:
        store.delete(f"acme/{whole}/meta.json")
    tenant = BucketTenant.objects.select_related("bucket", "folder").get()
    assert write_outbox(tenant, store).failed == 0
    block.refresh_from_db()
    assert block.state == (BlockState.MARKED if is_covered else BlockState.LIVE)
    assert has(store, f"acme/{held}/deletion-mark.json") == is_covered


def test_a_dry_run_lists_groups_to_withdraw_and_changes_nothing(committed: BucketTenant, store: ObjectStore) -> None:
    group = Group.objects.get()
    store.delete(f"acme/{Block.objects.get(made_by__isnull=False).ulid}/index")
    write_outbox(committed, store)
    steps = list(OutboxStep.objects.order_by("id").values_list("kind", "done_at_ms"))
    told = withdraw_groups([group.id, 999], context=replace(CONTEXT, is_dry_run=True))
    assert (told.is_dry_run, told.changed, told.left) == (True, (str(group),), (("group 999", "there is none"),))
    group.refresh_from_db()
    assert group.state == GroupState.DONE
    assert list(OutboxStep.objects.order_by("id").values_list("kind", "done_at_ms")) == steps
    with pytest.raises(CommandError, match="there is none"):
        call_command("tsdb", "withdraw", "999", "--why", "no such group")


def test_a_group_whose_sources_are_marked_already_is_not_withdrawn(committed: BucketTenant, store: ObjectStore) -> None:
    group = Group.objects.get()
    result = Block.objects.get(made_by__isnull=False)
    write_outbox(committed, store)
    # As if it had been refused before somebody mended the bucket.
    OutboxStep.objects.filter(block=result).update(done_at_ms=None, attempts=3)
    refused = withdraw_groups([group.id], context=CONTEXT)
    assert (refused.changed, refused.left) == ((), ((str(group), "sources of it are marked for deletion already"),))
    assert has(store, f"acme/{result.ulid}/meta.json")


def test_of_a_group_in_parts_the_results_that_are_seen_already_are_marked_when_it_is_withdrawn(
    bucket: Bucket, store: ObjectStore, node: FakeNode
) -> None:
    Bucket.objects.update(partition_series=10, readers_know_partitions=True)
    for ulid in REPLICAS:
        put_block(store, "acme/", ulid, 0, 2 * HOUR_MS)
    put_block(store, "acme/", LATER, 4 * HOUR_MS, 6 * HOUR_MS)
    rounds.scan_buckets(lambda url: store)
    rounds.plan_due(lambda url: store)
    parts = node.work_off()
    assert parts > 1
    group = Group.objects.get()
    results = list(Block.objects.filter(part__group=group).order_by("part__partition"))
    store.delete(f"acme/{results[-1].ulid}/index")
    tenant = BucketTenant.objects.select_related("bucket", "folder").get()
    assert write_outbox(tenant, store).failed == 1
    call_command("tsdb", "withdraw", str(group.id), "--why", "one of its parts is gone")
    assert write_outbox(tenant, store).failed == 0
    assert visible(store, "acme/") == {*REPLICAS, LATER}
    assert all(has(store, f"acme/{result.ulid}/deletion-mark.json") for result in results[:-1])
    assert not has(store, f"acme/{results[-1].ulid}/meta.json")
    rounds.plan_due(lambda url: store)
    assert node.work_off() == parts
    assert rounds.write_outboxes(lambda url: store).failed == 0
    check_all_data_is_visible(store)
